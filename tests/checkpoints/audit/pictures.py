"""Draw the effect of faults by length for the catalogue: `python -m tests.checkpoints.audit.pictures`."""

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import pytest
import torch
import transformers
from tests.checkpoints.audit.museum import MUSEUM
from tests.checkpoints.audit.sweep import Edited, build
from tests.checkpoints.audit.test_injections import FAULTS, model_of
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Inputs
from spectrope.checkpoints.audit.catalogue import PICTURED, PICTURES

ROOT = Path(__file__).parents[3]
LENGTHS = (512, 96)  # Tokens of a text, the fewer where a model takes no more.
SHARPER = 4.0  # Factor on the weights of projections, whose attention would else be flat.
TEXTS = 4
PREFERRED = {
    "SPE102": "declared scaling dropped",
    "SPE104": "weights in halves, code in neighbours",
    "SPE110": "rotation in a layer without one",
    "SPE201": "no causal mask beside dynamic ones",
    "SPE202": "window dropped for some layers",
    "SPE405": "cap of logits that are not scaled",
}


def sharpened(model: nn.Module) -> nn.Module:
    """The model with larger weights in its linear maps, as trained ones have."""
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and "embed" not in name and "relative" not in name and "wpe" not in name:
            weight.data.mul_(SHARPER)
    return model


@dataclass(frozen=True)
class Case:
    """A fault of the catalogue.

    Args:
        words: What went wrong, and in which family.
        sound: Builds the model without it.
        wrong: Builds the model with it; what it patches may change sound models of the family, too.
    """

    words: str
    sound: Callable[[], nn.Module]
    wrong: Callable[[pytest.MonkeyPatch], nn.Module]


def without_sinks(patch: pytest.MonkeyPatch) -> nn.Module:
    """The sinks take no attention."""
    model = build(Edited("gpt_oss", "", {}))
    for name, weight in model.named_parameters():
        if name.endswith("sinks"):
            weight.data.fill_(-100.0)
    return model


def case(code: str) -> Case:
    """A fault of that code."""
    if code == "SPE406":
        return Case("no sinks (gpt_oss)", lambda: build(Edited("gpt_oss", "", {})), without_sinks)
    exhibits = [one for one in MUSEUM if code in one.codes]
    if exhibits:
        one = next((one for one in exhibits if one.name == PREFERRED.get(code)), exhibits[0])
        return Case(f"{one.name} ({one.family})", one.sound, one.model)
    name, (inject, families, *_) = next((n, fault) for n, fault in FAULTS.items() if fault[2] == code)

    def wrong(patch: pytest.MonkeyPatch) -> nn.Module:
        model = model_of(families[0])
        inject(model, patch)
        return model

    return Case(f"{name} ({families[0]})", lambda: model_of(families[0]), wrong)


@torch.no_grad()
def predicted(model: nn.Module, tokens: Tensor) -> Tensor:
    """Logarithms of the probabilities of tokens at every position."""
    inputs: dict[str, Any] = Inputs(*tokens.shape).of(model)
    ids = {name: tokens for name in inputs if name.endswith("input_ids")}
    out = model(**inputs | ids)
    states = out.logits if hasattr(out, "logits") else out.last_hidden_state
    return states.double().log_softmax(-1)


def rows(code: str) -> tuple[str, list[dict[str, float]]]:
    """The fault in words, and the mean divergence after so many tokens."""
    one = case(code)
    for length in LENGTHS:
        torch.manual_seed(0)
        tokens = torch.randint(4, 64, (TEXTS, length))
        try:
            right = predicted(sharpened(one.sound()), tokens)
            with pytest.MonkeyPatch.context() as patch:
                apart = (right.exp() * (right - predicted(sharpened(one.wrong(patch)), tokens))).sum(-1)
        except (IndexError, RuntimeError):
            continue  # The model's table of positions has fewer rows.
        ends = torch.logspace(0, torch.tensor(length).log2().item(), 28, 2).round().long().unique().tolist()
        bins = [(a, b) for a, b in zip([0, *ends], ends, strict=False) if b > a]
        means = ((b, apart[:, a:b].mean().item()) for a, b in bins)
        return one.words, [{"tokens": b, "divergence": max(mean, 0.0)} for b, mean in means]
    raise ValueError(f"the model of {code} runs at no length.")


def picture(code: str) -> alt.Chart:
    """A line of the divergence against the length."""
    words, values = rows(code)
    return (
        alt.Chart(alt.Data(values=values), title=words)
        .mark_line(color="#d84a02", point=alt.OverlayMarkDef(size=14, color="#d84a02"))
        .encode(
            alt.X("tokens:Q", title="tokens read", scale=alt.Scale(type="log", base=2)),
            alt.Y("divergence:Q", title="divergence, nats", axis=alt.Axis(format=".1e", tickCount=4)),
        )
        .properties(width=320, height=120, background="white")
        .configure_title(fontSize=11, anchor="start", fontWeight="normal")
        .configure_view(stroke=None)
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    (ROOT / "docs" / PICTURES).mkdir(exist_ok=True)
    for each in PICTURED:
        picture(each).save(str(ROOT / "docs" / PICTURES / f"{each}.svg"))
        sys.stdout.write(f"{each}\n")
