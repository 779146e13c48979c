"""Measure the impact of findings: compare the model with itself when a layer or a table is corrected."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import FAILURES, Inputs, drawn_weights, is_sound_encoder, whole_config
from spectrope.checkpoints.adapters.substitute import Given, substituting
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.impact import HARMLESS, Impact
from spectrope.checkpoints.audit.substitution import Rows, Substitution
from spectrope.core import UnsupportedError, torch_stream

LONGEST = 512  # Tokens of a sequence.
FINE = 1e-6  # Relative rounding error up to which the divergence that it makes lies below `HARMLESS`.
MOST = 48  # Positions at which predictions are compared.


@dataclass(frozen=True, eq=False)
class Remedy:
    """Correction of one layer or table of positions in one property, or the reason why there is none.

    Args:
        module: That attends, or that holds the table.
        finding: What is wrong.
        substitution: What takes its place, or the reason why nothing does.
    """

    module: nn.Module
    finding: Discrepancy
    substitution: Substitution | Rows | str


def measure_impacts(
    model: nn.Module,
    remedies: Sequence[Remedy],
    length: int,
    noise: float,
    seed: int,
    text: Sequence[int] | None = None,
) -> tuple[Impact, ...]:
    """The impact of every finding, in the order of the remedies.

    Findings of one code that say the same of several layers are put right together.

    Args:
        model: The whole model, in evaluation mode.
        remedies: A remedy per finding.
        length: Positions of the audit.
        noise: Relative rounding error of the model's arithmetic.
        seed: Of the tokens.
        text: Tokens of a text; None takes random ones, repeated once.
    """
    groups: dict[tuple[str, str, str, str], list[Remedy]] = {}
    for one in remedies:
        groups.setdefault(_cause(one.finding), []).append(one)
    if not groups:
        return ()
    predictions = Predictions.of(model, min(length, LONGEST), seed, text)
    rounding = cache(lambda: HARMLESS if isinstance(predictions, str) else predictions.rounding(noise))
    found = {cause: _impact(predictions, together, rounding) for cause, together in groups.items()}
    return tuple(found[_cause(one.finding)] for one in remedies)


def _cause(finding: Discrepancy) -> tuple[str, str, str, str]:
    return finding.code, finding.what, finding.expected, finding.effective


def _impact(
    predictions: "Predictions | str", together: Sequence[Remedy], rounding: Callable[[], float]
) -> Impact:
    """The impact of findings of one cause."""
    reasons = [one.substitution for one in together if isinstance(one.substitution, str)]
    if isinstance(predictions, str) or reasons:
        return Impact(reason=predictions if isinstance(predictions, str) else reasons[0])
    changes = {one.module: one.substitution for one in together if not isinstance(one.substitution, str)}
    try:
        right, bound = predictions.predicted(changes), rounding()
    except UnsupportedError as error:
        return Impact(reason=str(error))
    except FAILURES as error:
        return Impact(reason=f"the model does not run with it: {type(error).__name__}")
    divergence = divergence_of(right, predictions.seen)
    places = predictions.places.tolist()
    octaves = [2**k for k in range(3, 20) if 2**k <= places[-1]] + [places[-1] + 1]
    ends = list(dict.fromkeys(octaves))
    by_length, before = [], 0
    for end in ends:
        rows = [row for row, place in enumerate(places) if before <= place < end]
        by_length.append(divergence[rows].mean().item() if rows else float("nan"))
        before = end
    kept = [(end, value) for end, value in zip(ends, by_length, strict=True) if value == value]
    loss = predictions.loss(predictions.seen) - predictions.loss(right) if predictions.predicts_next else None
    return Impact(
        divergence=divergence.mean().item(),
        loss=loss,
        lengths=tuple(end for end, _ in kept),
        by_length=tuple(value for _, value in kept),
        layers=len(changes),
        rounding=bound,
        on_text=predictions.on_text,
    )


def divergence_of(first: Float[Tensor, "m v"], second: Float[Tensor, "m v"]) -> Float[Tensor, " m"]:
    """Kullback-Leibler divergence, in nats, of distributions from others, both given by their logarithms."""
    return (first.exp() * (first - second)).sum(-1)


def _repeated(vocabulary: int, length: int, seed: int) -> Int[Tensor, " n"]:
    """Random tokens, repeated once."""
    stream = torch_stream(seed, "impact")
    half = torch.randint(4, max(vocabulary, 5), ((length + 1) // 2,), generator=stream)
    return torch.cat([half, half])[:length]


def _layers(config: Any) -> int | None:
    """Layers that a configuration has."""
    return getattr(config.get_text_config(), "num_hidden_layers", None)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Tokens, and what the model as it is predicts after some of them."""

    model: nn.Module
    inputs: Mapping[str, Any]
    tokens: Int[Tensor, " n"]
    places: Int[Tensor, " m"]
    seen: Float[Tensor, "m v"]
    predicts_next: bool
    on_text: bool

    @classmethod
    def of(
        cls, model: nn.Module, length: int, seed: int, text: Sequence[int] | None = None
    ) -> "Predictions | str":
        """The model's own predictions, or why there are none."""
        if is_sound_encoder(model):
            return "an encoder of sounds predicts no tokens"
        if _layers(whole_config(model)) != _layers(model.config):
            return "layers were left out, so the model predicts nothing"
        if getattr(model, "get_output_embeddings", lambda: None)() is None:
            return "the model was loaded without a head that predicts tokens"
        if drawn_weights(model):
            return "weights of its head are random"
        config: Any = model.config
        vocabulary = int(config.get_text_config().vocab_size)
        tokens = _repeated(vocabulary, length, seed) if text is None else torch.tensor(text[:length])
        length = len(tokens)
        inputs = Inputs(1, length).of(model)
        ids = {name: tokens[None].to(value) for name, value in inputs.items() if name.endswith("input_ids")}
        last = length - 2  # The last position whose next token is known.
        places = torch.logspace(2, torch.tensor(float(last)).log2().item(), MOST, 2).round().long().unique()
        next_token = type(model).__name__.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"))
        try:
            seen = _predicted(model, inputs | ids, places, {})
        except UnsupportedError as error:
            return str(error)
        except FAILURES as error:
            return f"the model does not predict tokens here: {type(error).__name__}"
        return cls(model, inputs | ids, tokens, places, seen, next_token, text is not None)

    def predicted(self, changes: Mapping[nn.Module, Substitution | Rows]) -> Float[Tensor, "m v"]:
        """Logarithms of the probabilities of tokens after some of them, with changes in some modules."""
        return _predicted(self.model, self.inputs, self.places, changes)

    def rounding(self, noise: float) -> float:
        """Largest divergence, at one position, that comes from a rounding more in every query and key.

        Args:
            noise: Relative rounding error of the model's arithmetic.
        """
        if noise <= FINE:
            return HARMLESS
        stream = torch_stream(0, "rounding")

        def rounded(x: Tensor) -> Tensor:
            signs = torch.randint(0, 2, x.shape, generator=stream).to(x.device) - 0.5
            return (x.float() * (1 + noise * signs)).to(x.dtype)

        def change(given: Given) -> Given:
            return replace(given, q=rounded(given.q), k=rounded(given.k))

        every = dict.fromkeys(self.model.modules(), change)
        return max(HARMLESS, divergence_of(self.predicted(every), self.seen).max().item())

    def loss(self, predicted: Float[Tensor, "m v"]) -> float:
        """Mean negative logarithm of the probability of the tokens that come next."""
        return -predicted.gather(1, self.tokens[self.places + 1][:, None]).mean().item()


@torch.no_grad()
def _predicted(
    model: nn.Module,
    inputs: Mapping[str, Any],
    places: Int[Tensor, " m"],
    changes: Mapping[nn.Module, Substitution | Rows],
) -> Float[Tensor, "m v"]:
    """Logarithms of the probabilities of tokens at some places."""

    tables = {module: one for module, one in changes.items() if isinstance(one, Rows)}
    attending = {module: one for module, one in changes.items() if not isinstance(one, Rows)}

    def change(module: nn.Module, given: Given) -> Given:
        return attending[module](given) if module in attending else given

    with contextlib.ExitStack() as changed:
        for table, rows in tables.items():
            hook = table.register_forward_hook(lambda _, args, output, rows=rows: rows.instead_of(output))
            changed.callback(hook.remove)
        if attending:
            changed.enter_context(substituting(model, change))
        logits = model(**inputs).logits[0]
    return logits[places.to(logits.device)].double().cpu().log_softmax(-1)
