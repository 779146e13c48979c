"""Biases that accumulate over the tokens between query and key: the Forgetting Transformer and CABLE."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Scope, Tag


class Decay(Encoding):
    r"""Base of biases :math:`b_{ij} = -|c_i - c_j|`, where c sums a gate over the tokens up to each.

    Queries are assumed to be the last tokens among the keys. Without a causal mask, future keys decay in the
    same way as past ones.

    Configurations have `d_model`, the width of the hidden states, and `n_heads`, each of which has a gate.
    """

    family = "content-aware"
    form = Form.DOT_PLUS_BIAS
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.LEARNED})
    scope = Scope.LAYER

    def setup(self, config: Any) -> None:
        self.gate = nn.Linear(config.d_model, config.n_heads)

    def steps(self, x: Float[Tensor, "b j c"]) -> Float[Tensor, "b j h"]:
        """What each token adds to the sum: at most 0."""
        raise NotImplementedError

    def bias(self, ctx: Context) -> Tensor:
        """The bias of every head.

        Raises:
            UnsupportedError: If the context contains no hidden states.
            ConfigError: If there are more queries than keys.
        """
        steps = self.steps(self.states(ctx).to(self.gate.weight.dtype))
        total = steps.to(torch.promote_types(steps.dtype, torch.float32)).cumsum(1).transpose(1, 2)
        rows = total[..., -ctx.q.shape[-2] :]
        return -(rows[..., :, None] - total[..., None, :]).abs()


class FoX(Decay, name="fox"):
    r"""Adds the logarithm of a forget gate for each token between query and key:
    :math:`\sum_{l=j+1}^{i} \ln \sigma(w_h x_l + \beta_h)`.

    References:
        Forgetting Transformer: Softmax Attention with a Forget Gate (Lin et al., 2025).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """FoX has only the sizes of its gates to configure."""

        d_model: int = 256
        n_heads: int = 16

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "n_heads")

    def steps(self, x: Float[Tensor, "b j c"]) -> Float[Tensor, "b j h"]:
        return F.logsigmoid(self.gate(x))


class CABLE(Decay, name="cable"):
    r"""Subtracts a positive, content-dependent step for each token between query and key:
    :math:`\sum_{l=j+1}^{i} s(w_h x_l + \beta_h)`.

    With s = softplus, as here, this equals FoX with the opposite sign inside the gate; the two differ only in
    their initialisation.

    References:
        Context-aware Biases for Length Extrapolation (Veisi et al., 2025); the authors' code.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes of the gates and where they start."""

        d_model: int = 256
        n_heads: int = 16
        std: float = 0.02  # Standard deviation of the initial weights.

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "n_heads")
            require_least(self, 0, "std")

    def setup(self, config: "CABLE.Config") -> None:
        super().setup(config)
        nn.init.normal_(self.gate.weight, std=config.std)
        nn.init.zeros_(self.gate.bias)

    def steps(self, x: Float[Tensor, "b j c"]) -> Float[Tensor, "b j h"]:
        return -F.softplus(self.gate(x))
