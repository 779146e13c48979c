"""Certificates of plans: for every fast head, the polynomial and the bounds that its error follows from."""

from collections.abc import Sequence
from typing import Any

import torch

from spectrope.fast.certificate import Certificate
from spectrope.fast.planning import HeadPlan
from spectrope.store import Certified


def certified_plan(
    heads: Sequence[tuple[int, HeadPlan]], tolerance: float, length: int, tokens: int
) -> Certified | None:
    """Certificate of the heads that a plan computes with a fast kernel; None if there are none.

    Args:
        heads: Number of the layer and plan of each head.
        tolerance: Largest certified error of an output, in units of max|v|.
        length: Tokens that the plan is for.
        tokens: Tokens of the sequences that ranges were measured on.
    """
    claims: list[dict[str, Any]] = []
    witness: list[dict[str, Any]] = []
    for layer, head in heads:
        if head.choice != "exact" and (proof := head.certificate) is not None:
            claims.append(_claim(layer, head, proof, tolerance))
            witness.append(_witness(proof))
    if not claims:
        return None
    return Certified("attention", {"length": length, "tokens": tokens, "heads": claims}, witness)


def _claim(layer: int, head: HeadPlan, proof: Certificate, tolerance: float) -> dict[str, Any]:
    premises = proof.premises
    return {
        "layer": layer,
        "head": head.head,
        "kernel": head.choice,
        "dim": premises.setting.dim,
        "tolerance": tolerance,
        "reach": premises.reach,
        "norm": premises.norm,
        "remainder": premises.remainder,
        "deviation": premises.setting.deviation,
        "error_bound": proof.error_bound,
    }


def _witness(proof: Certificate) -> dict[str, Any]:
    premises, setting, lags = proof.premises, proof.premises.setting, proof.premises.lags
    transform = {} if lags is None else {"energy": lags.energy, "least": lags.least, "points": lags.length}
    rounded = torch.finfo(setting.out).eps if setting.out != setting.dtype else 0.0
    return {
        "coefficients": list(proof.polynomial.coefficients),
        "end": proof.polynomial.reach,
        "polynomial_bound": proof.polynomial.error_bound,
        "epsilon_bound": proof.epsilon_bound,
        "rounding_bound": proof.rounding_bound,
        "unit": torch.finfo(setting.dtype).eps / 2,
        "input_unit": torch.finfo(setting.inputs or setting.dtype).eps / 2,
        "output_unit": rounded,
        "steps": premises.steps,
        "transform": [transform | {"features": proof.features}] if transform else [],
    }
