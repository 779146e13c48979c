"""Random models with the outliers of trained ones: large biases, weights of norms, rows of projections.

`python -m tests.checkpoints.audit.trained [FAMILY ...]` audits every text family so in three precisions and
prints alarms.
"""

import sys
import warnings
from collections.abc import Iterator

import torch
import transformers
from tests.checkpoints.audit.zoo import Variant, asked_families, build, families
from torch import Tensor, nn

from spectrope.checkpoints.audit import Audit, audit
from spectrope.core import SpectropeError, unwatched

LENGTH = 48
OUTLIERS = ("biases", "norms", "rows", "all")
DTYPES = ("bfloat16", "float16", "float32")
SOME = 32  # One in so many is an outlier.


def with_outliers(model: nn.Module, kind: str, seed: int = 7) -> nn.Module:
    """Give biases of projections, weights of norms, rows of attention or all of them a long-tailed spread."""
    generator = torch.Generator().manual_seed(seed)

    def spread(n: int, by: float, outlier: float) -> Tensor:
        drawn = torch.exp(by * torch.randn(n, generator=generator))
        drawn[torch.randperm(n, generator=generator)[: max(1, n // SOME)]] *= outlier
        return drawn

    for name, weights in model.named_parameters():
        norm = "norm" in name.lower() or "ln" in name.lower()
        if weights.ndim == 1 and name.endswith("bias") and not norm and kind in ("biases", "all"):
            signs = torch.randn(len(weights), generator=generator)
            weights.data.copy_(signs * spread(len(weights), 1.0, 40.0))
        elif weights.ndim == 1 and name.endswith("weight") and norm and kind in ("norms", "all"):
            weights.data.mul_(spread(len(weights), 0.7, 15.0).to(weights))
        elif weights.ndim == 2 and "att" in name.lower() and kind in ("rows", "all"):
            weights.data.mul_(spread(len(weights), 1.0, 1.0)[:, None].to(weights))
    return model


def alarms(found: Audit) -> list[str]:
    """What an audit says of a model that has no fault."""
    told = [*found.layers, *found.absolutes, *found.decays, *found.indexers, *found.serving_modes]
    return [str(wrong) for one in told for wrong in one.findings]


def campaign(chosen: list[str]) -> Iterator[tuple[Variant, str, list[str]]]:
    """Every kind of outliers in every precision of these families, with the alarms of each."""
    heads = families()
    for family in chosen:
        for kind in OUTLIERS:
            for dtype in DTYPES:
                variant = Variant(family, heads[family], dtype=dtype)
                try:
                    found = audit(with_outliers(build(variant), kind), length=LENGTH, watch=unwatched)
                except SpectropeError:
                    continue
                yield variant, kind, alarms(found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    audits = wrong = 0
    for one, outliers, told in campaign(asked_families("trained", "Audit models with outliers.")):
        audits, wrong = audits + 1, wrong + bool(told)
        if told:
            sys.stdout.write(f"{one}, outliers in {outliers}: {told[0][:300]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{audits} audits of models with outliers: {wrong} with an alarm\n")
