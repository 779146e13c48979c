"""Certificates of an audit: sampled queries and keys of every layer, and the other evidence for its
verdict."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import declared_config, evaluating, runs_at
from spectrope.checkpoints.audit.compare import GAIN, SLOPE
from spectrope.checkpoints.audit.declaration import layer_type
from spectrope.checkpoints.audit.declared_rope import rope_parameters, trained_before
from spectrope.checkpoints.audit.encoding import Turning
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.records import Audit, LayerRecord
from spectrope.checkpoints.audit.turning import unscaled
from spectrope.checkpoints.probes.constant_content import LayerKernel, constant_content
from spectrope.encodings import Pairing, complex_pairs
from spectrope.store import Certified

SEED = 1  # Of the contents; the audit's own are drawn with others.
Vectors = dict[str, Float[Tensor, "h t d"]]  # By side: one content's, at the sampled positions.


def certified_audit(model: nn.Module, audit: Audit) -> Certified:
    """What an audit found of each layer, with queries and keys measured anew as its witness.

    Queries and keys of every head are sampled at four positions, with the same content everywhere. The
    verifier compares their rotation with the declared frequencies.

    Args:
        model: The model that was audited.
        audit: Its audit.
    """
    declaration = Declaration(**declared_config(model))
    audit.require_layers("a certificate")
    found = {one.module: one for one in audit.layers}
    vectors: dict[str, Vectors] = {}
    places = sorted({0, 1, audit.length // 2, audit.length - 1})

    def receive(kernel: LayerKernel) -> None:
        sides = {"queries": kernel.call.q, "keys": kernel.call.k}
        free = {side: unscaled(x[:1].double(), audit.noise)[0][0, :, places] for side, x in sides.items()}
        vectors[kernel.call.module] = free

    inner = getattr(model, "base_model", model)
    with evaluating(model), runs_at(audit.length, model):
        constant_content(inner, list(found), audit.length, receive, seed=SEED)
    laws = {one.module: _law(one, declaration, vectors[one.module]) for one in audit.layers}
    claim = {
        "architecture": audit.architecture,
        "length": audit.length,
        "noise": audit.noise,
        "outcome": audit.outcome,
        "layers": [
            {
                "layer": one.layer,
                "stack": one.stack,
                "module": one.module,
                "verdict": one.verdict,
                "law": laws[one.module],
            }
            for one in audit.layers
        ],
    }
    witness = [
        {
            "vectors": _sampled(vectors[one.module], places) if laws[one.module]["kind"] != "other" else [],
            "comparisons": list(_comparisons(one, audit.noise)),
        }
        for one in audit.layers
    ]
    return Certified("audit", claim, witness)


def _sampled(vectors: Vectors, places: list[int]) -> list[dict[str, Any]]:
    return [
        {
            "side": side,
            "head": head,
            "positions": places,
            "values": [_rounded(row) for row in x[head].tolist()],
        }
        for side, x in vectors.items()
        for head in range(len(x))
    ]


def _rounded(row: list[float]) -> list[float]:
    """Eight digits, beyond what float32 resolves."""
    return [float(f"{value:.8g}") for value in row]


def _law(layer: LayerRecord, declaration: Declaration, vectors: Vectors) -> dict[str, Any]:
    """The declared law of a layer's queries and keys, as the kernel sees their pairs."""
    turning = layer.declared.turning
    if layer.declared.kind == "none":
        return {"kind": "none"}
    fits = turning is not None and all(turning.start + turning.width <= x.shape[-1] for x in vectors.values())
    if layer.declared.kind != "rotary" or turning is None or not fits:
        return {"kind": "other"}
    sense = turning.sense or (layer.effective.turning and layer.effective.turning.sense) or 1
    return {
        "kind": "rotary",
        "start": turning.start,
        "width": turning.width,
        "pairing": _seen_pairing(turning, sense, vectors),
        "sense": sense,
        "schedule": _schedule(declaration.at(layer.layer), layer, turning),
        "frequencies": list(turning.frequencies),
    }


def _seen_pairing(turning: Turning, sense: int, vectors: Vectors) -> Pairing:
    """The layout in which the pairs turn by the declared frequencies best, from position 0 to 1."""

    def departure(pairing: Pairing) -> float:
        angle = sense * torch.tensor(turning.frequencies, dtype=torch.float64)
        wanted = torch.polar(torch.ones_like(angle), angle)
        off = 0.0
        for x in vectors.values():
            z = complex_pairs(x[..., turning.start : turning.start + turning.width], pairing)
            off += float((z[:, 1] - z[:, 0] * wanted).abs().square().sum())
        return off

    return min(("halves", "adjacent"), key=departure)


def _schedule(declaration: Declaration, layer: LayerRecord, turning: Turning) -> dict[str, Any]:
    """The rule behind the frequencies where it is a simple one; they stand for themselves otherwise."""
    parameters = rope_parameters(declaration, layer_type(declaration, layer.layer))
    kind, base = parameters.get("rope_type") or "default", turning.base or 10000.0
    if kind in ("default", "linear"):
        factor = float(parameters.get("factor") or 1.0) if kind == "linear" else 1.0
        rule: dict[str, Any] = {"type": "geometric", "base": base, "factor": factor}
        pairs = len(turning.frequencies)
        wanted = [base ** (-j / pairs) / factor for j in range(pairs)]
        same = all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(wanted, turning.frequencies, strict=True))
        return rule if same else {"type": "listed"}
    if kind == "llama3":
        names = {"low": "low_freq_factor", "high": "high_freq_factor", "factor": "factor"}
        given = {short: float(parameters[name]) for short, name in names.items()}
        original = float(trained_before(declaration, parameters))
        return {"type": "llama3", "base": base, "original": original} | given
    return {"type": "listed"}


def _comparisons(layer: LayerRecord, noise: float) -> Iterator[dict[str, Any]]:
    """Values beside the rotation that a verdict rests on, and every finding in words."""
    declared, effective, tolerance = layer.declared, layer.effective, max(GAIN, 2 * noise)
    for name in ("softcap", "scale", "sees_future", "values_vary", "normalised_after"):
        pair = getattr(declared, name), getattr(effective, name)
        if None not in pair:
            yield _compared(name, *pair, tolerance)
    if declared.turning is not None and effective.turning is not None:
        gains = declared.turning.gain, effective.turning.gain
        if None not in gains:
            yield _compared("gain", *gains, tolerance)
        pairings = declared.turning.pairing, effective.turning.pairing
        if None not in pairings:
            yield _compared("pairing", *pairings, 0.0)
    if declared.slopes is not None and effective.slopes is not None:
        for head, pair in enumerate(zip(declared.slopes, effective.slopes, strict=True)):
            yield _compared(f"slope of head {head}", *pair, max(SLOPE, noise))
    for finding in layer.findings:
        if finding.expected != finding.effective:
            yield _compared(finding.what, finding.expected, finding.effective, 0.0)


def _compared(what: str, declared: Any, effective: Any, tolerance: float) -> dict[str, Any]:
    return {"what": what, "declared": declared, "effective": effective, "tolerance": min(tolerance, 0.05)}
