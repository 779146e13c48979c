"""The parameters whose product gives a head's logits, their gradients and their change in training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.attention import MultiHead
from spectrope.core import UnsupportedError
from spectrope.encodings import FactorisedTable
from spectrope.lab.evaluation.score import IGNORED, counted_labels
from spectrope.models import Decoder
from spectrope.tasks import Batch


@dataclass(frozen=True, eq=False)
class Factor:
    """A parameter that holds one block per head, in one or several sets.

    Args:
        parameter: The parameter. Its first rows hold the sets one after another, each with the heads in
            order.
        sets: Number of sets.
        n_heads: Number of heads of the layer.
        rows: Number of rows of all sets (default: all rows).
    """

    parameter: Tensor
    sets: int
    n_heads: int
    rows: int | None = None

    def energy(self, values: Tensor) -> Float[Tensor, " h"]:
        """Sum of squares of each head's part of `values`, shaped as the parameter, in float64."""
        blocks = values[: self.rows].detach().double().reshape(self.sets, self.n_heads, -1)
        return blocks.square().sum((0, 2))


Factors = list[list[Factor]]  # Of each layer.


def head_factors(model: Decoder) -> Factors:
    """The factors through which position enters the logits of each layer.

    These are the encoding's own factors, if it has any (like `FactorisedTable`), otherwise W_Q and W_K.

    Raises:
        UnsupportedError: If attention is not multi-head.
    """
    encodings = [model.encoding_of(layer) for layer in range(len(model.blocks))]
    return [
        _of_table(encoding, weights[0].n_heads) if isinstance(encoding, FactorisedTable) else weights
        for encoding, weights in zip(encodings, projections(model), strict=True)
    ]


def projections(model: Decoder) -> Factors:
    """W_Q and W_K of each layer, which every encoding has.

    Raises:
        UnsupportedError: If attention is of another kind than multi-head.
    """
    return [[_queries_and_keys(block.heads)] for block in model.blocks]


def factor_gradients(
    model: Decoder, batch: Batch, of: Callable[[Decoder], Factors] = head_factors
) -> list[Float[Tensor, " h"]]:
    r"""Energy :math:`\|\partial\ell/\partial f_h\|^2` of the gradient by each head's factors, per layer.

    One forward and backward pass without dropout; weights, their gradients and random streams stay as they
    are.

    Args:
        model: A decoder with multi-head attention.
        batch: Examples whose mean loss is differentiated, on the device of the model.
        of: Which factors.

    Raises:
        UnsupportedError: If attention is of another kind.
    """
    factors = of(model)
    with torch.enable_grad():
        logits = model(batch)
        loss = F.cross_entropy(logits, counted_labels(model, batch.labels), ignore_index=IGNORED)
    parameters = [factor.parameter for layer in factors for factor in layer]
    gradients = iter(torch.autograd.grad(loss, parameters))
    return [_total([factor.energy(next(gradients)) for factor in layer]) for layer in factors]


def factor_growth(before: Decoder, after: Decoder) -> list[Float[Tensor, " h"]]:
    r"""Energy :math:`\|f_h(\text{after}) - f_h(\text{before})\|^2` of the change of each head's factors.

    Args:
        before: A decoder with multi-head attention, such as one that is not trained.
        after: The same decoder later.

    Raises:
        UnsupportedError: If attention is of another kind.
    """
    pairs = zip(head_factors(before), head_factors(after), strict=True)
    return [
        _total([now.energy(now.parameter - then.parameter) for then, now in zip(*pair, strict=True)])
        for pair in pairs
    ]


def by_head(**energies: Sequence[Float[Tensor, " h"]]) -> pl.DataFrame:
    """A row per layer and head, with its energies, a column for each."""
    values = {name: torch.stack(list(layers)).double() for name, layers in energies.items()}
    n_layers, n_heads = next(iter(values.values())).shape
    layers, heads = torch.meshgrid(torch.arange(n_layers), torch.arange(n_heads), indexing="ij")
    places = {"layer": layers, "head": heads}
    return pl.DataFrame({name: column.flatten().numpy() for name, column in (places | values).items()})


def _queries_and_keys(heads: Tensor | nn.Module) -> Factor:
    if not isinstance(heads, MultiHead):
        raise UnsupportedError(
            f"only multi-head attention has separate factors per head; got {type(heads).__name__}."
        )
    return Factor(heads.qkv.weight, 2, heads.n_heads, rows=2 * heads.inner)


def _of_table(encoding: FactorisedTable, n_heads: int) -> list[Factor]:
    return [Factor(encoding.heads, 1, n_heads), Factor(encoding.lags, len(encoding.lags), n_heads)]


def _total(energies: Sequence[Float[Tensor, " h"]]) -> Float[Tensor, " h"]:
    return torch.stack(list(energies)).sum(0).cpu()
