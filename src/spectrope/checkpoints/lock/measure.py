"""Measure what a lock holds: an audit, and for every head the norms that tell other weights."""

import contextlib
import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    evaluating,
    fixed_positions,
    is_sound_encoder,
    runs_at,
    whole_config,
)
from spectrope.checkpoints.adapters.parts import as_part
from spectrope.checkpoints.adapters.towers import is_tower
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.records import (
    Audit,
    DecayRecord,
    HeadRecord,
    LayerRecord,
    VisionRecord,
)
from spectrope.checkpoints.audit.run import audit, default_length
from spectrope.checkpoints.audit.serving import AGREE
from spectrope.checkpoints.audit.text import beyond_length
from spectrope.checkpoints.lock.added import kept_places, locked_embeddings
from spectrope.checkpoints.lock.records import (
    KINDS,
    SERVING_MODES,
    Lock,
    LockedDecay,
    LockedHead,
    LockedLayer,
    LockedServingMode,
    LockedVision,
)
from spectrope.checkpoints.probes.constant_content import LayerKernel, constant_content
from spectrope.core import Watch

LIBRARIES = ("spectrope", "torch", "transformers", "safetensors")
LOCK_LENGTH = 128  # Positions of a lock, where the model takes as many.
KEPT = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # Lags that are kept; beyond them, every eighth that was sampled.
RANKS = 4  # Of magnitudes that are kept of a query, and of a key.
FirstVectors = Mapping[str, tuple[Float[Tensor, "h d"], Float[Tensor, "h d"]]]  # Queries and keys, by module.


def lock(
    model: nn.Module,
    *,
    length: int | None = None,
    serving_modes: bool = True,
    contents: int = 2,
    part: str | None = None,
    name: str = "",
    layers_taken: str = "",
    watch: Watch | None = None,
) -> Lock:
    """Measure the encodings that a model applies, for a later comparison.

    Args:
        model: A Hugging Face model or an `OwnModel`.
        length: Positions; None takes 128, or as many as the model takes.
        serving_modes: Whether to compare caches, chunked prefill, padding and packing with a plain
            forward pass.
        contents: Random contents, at least 2.
        part: Dotted name of a model within it that is locked by itself, such as "model.encoder" of Whisper.
        name: Where the checkpoint lies, as the lock is to say it.
        layers_taken: Layers that were loaded, as the lock is to say it.
        watch: Called with the numbers of layers measured and in all; None shows them.

    Raises:
        ConfigError: As `audit` does.
        UnsupportedError: As `audit` does.

    Example:
        >>> import spectrope as sp
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, num_attention_heads=4, **sizes))
        >>> sp.lock(model, length=64, watch=sp.unwatched).layers[0].applies
        'rotary, base 10000'
    """
    whole = contextlib.nullcontext(model) if part is None else as_part(model, part)
    with whole as model:
        return _held(model, length, serving_modes, contents, name, layers_taken, watch)


def _held(
    model: nn.Module,
    length: int | None,
    serving_modes: bool,
    contents: int,
    name: str,
    layers_taken: str,
    watch: Watch | None,
) -> Lock:
    """What a lock holds of a model, or of a part that remembers the whole."""
    found = _audited(model, length, serving_modes, contents, watch)
    modules = [one.module for one in found.layers]
    vectors = _first_vectors(model, modules, contents) if modules else {}
    source = str(getattr(whole_config(model), "_name_or_path", "") or "")
    return Lock(
        model=name or source or getattr(model, "name", type(model).__name__),
        architecture=found.architecture,
        config_sha256=_digest(Path(source)) if source else "",
        dtype=found.dtype,
        noise=found.noise,
        length=found.length,
        part=getattr(model, "part_name", ""),
        layers_taken=layers_taken,
        contents=contents,
        versions=library_versions(),
        unread=found.unread,
        embeddings=tuple(locked_embeddings(one, found.noise, model) for one in found.absolutes),
        layers=tuple(_layer(one, vectors, found.noise) for one in (*found.layers, *found.indexers)),
        paths=tuple(
            LockedServingMode(path=one.mode, verdict=one.verdict, findings=tuple(map(str, one.findings)))
            for one in found.serving_modes
        ),
        decays=tuple(map(_decay, found.decays)),
        vision=tuple(map(_vision, found.vision)),
        outside=tuple(filter(None, (*found.without, found.unseen, *found.unexercised, *_unheld(found)))),
        kinds=tuple(one for one in KINDS if one != SERVING_MODES or serving_modes or not _serves(model)),
    )


def _audited(
    model: nn.Module, length: int | None, serving_modes: bool, contents: int, watch: Watch | None
) -> Audit:
    """The audit that a lock keeps; of a vision tower on its own, whose length is that of a picture."""
    if is_tower(model):
        return audit(model, batch=contents, watch=watch)
    if length is None:
        length = fixed_positions(model) or min(default_length(model), LOCK_LENGTH)
    modes = serving_modes and _serves(model)
    return audit(model, length=length, serving_modes=modes, batch=contents, watch=watch)


def _serves(model: nn.Module) -> bool:
    """Whether a model has serving modes: whether it takes tokens."""
    return not is_tower(model) and not is_sound_encoder(model)


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that decide what a model applies."""
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def _digest(folder: Path) -> str:
    """SHA-256 of the configuration in a folder; "" where there is none."""
    path = folder / "config.json"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _first_vectors(model: nn.Module, modules: list[str], contents: int) -> FirstVectors:
    """Queries and keys of every head at the first position, for the contents of the audit's kernels."""
    inner = getattr(model, "base_model", model)
    vectors: dict[str, tuple[Tensor, Tensor]] = {}

    def receive(kernel: LayerKernel) -> None:
        q, k = kernel.call.q[0, :, 0].double(), kernel.call.k[0, :, 0].double()
        vectors[kernel.call.module] = q.clone(), k.repeat_interleave(len(q) // len(k), dim=0)

    length = fixed_positions(inner) or 8
    with evaluating(model), runs_at(length, model):
        constant_content(inner, modules, length, receive, contents=contents)
    return vectors


def _layer(record: LayerRecord, vectors: FirstVectors, noise: float) -> LockedLayer:
    turning = record.declared.turning
    heads: tuple[LockedHead, ...] = ()  # Of an indexer, whose kernel holds for its own use alone.
    if record.module in vectors:
        query, key = vectors[record.module]
        heads = tuple(_head(one, query[one.head], key[one.head], record.scale, noise) for one in record.heads)
    return LockedLayer(
        name=record.name,
        module=record.module,
        applies=record.effective.describe(turning),
        declared=record.declared.describe(turning),
        verdict=record.verdict,
        findings=_told(record.findings),
        encoding=record.effective,
        heads=heads,
        far=record.far,
    )


def _unheld(audit: Audit) -> Iterator[str]:
    """What a lock lacks of the embeddings, and what was not looked at beyond its positions, in words."""
    for one in audit.absolutes:
        if one.term is not None and len(one.term) > len(kept_places(one)):
            table = one.table or f"what embeddings of {one.block} add"
            yield f"{table} at other than {len(kept_places(one))} positions up to {kept_places(one)[-1]}"
    if audit.layers:
        yield from beyond_length(audit)


def _decay(record: DecayRecord) -> LockedDecay:
    return LockedDecay(
        name=record.name,
        module=record.module,
        rates=record.effective,
        reach=record.reach,
        verdict=record.verdict,
        findings=_told(record.findings),
    )


def _vision(record: VisionRecord) -> LockedVision:
    return LockedVision(
        name=record.name,
        module=record.module,
        mask=record.mask,
        turning=record.effective,
        verdict=record.verdict,
        findings=_told(record.findings),
    )


def _told(findings: Iterable[Discrepancy]) -> tuple[str, ...]:
    return tuple(f"{finding.code} {finding}" for finding in findings)


def _head(
    record: HeadRecord, query: Float[Tensor, " d"], key: Float[Tensor, " d"], scale: float, noise: float
) -> LockedHead:
    sampled = list(zip(record.lags, record.kernel, strict=True))
    near = [(lag, value) for lag, value in sampled if abs(lag) in KEPT]
    far = [(lag, value) for lag, value in sampled if abs(lag) > max(KEPT)][::8]
    lags, kernel = zip(*sorted(near + far), strict=True) if near else ((), ())
    largest = max(map(abs, record.kernel), default=0.0)
    norms = float(query.norm()), float(key.norm())
    return LockedHead(
        head=record.head,
        position=record.position,
        query=norms[0],
        key=norms[1],
        lags=lags,
        kernel=kernel,
        tolerance=AGREE * largest + 8 * noise * abs(scale) * norms[0] * norms[1],
        magnitudes=(*_magnitudes(query), *_magnitudes(key)),
    )


def _magnitudes(vector: Float[Tensor, " d"]) -> list[float]:
    """Magnitudes of some entries by rank, relative to their root mean square: no order and no sign shows."""
    ranked = vector.abs().sort().values / max(float(vector.square().mean().sqrt()), 1e-300)
    return [float(ranked[(2 * rank + 1) * len(ranked) // (2 * RANKS)]) for rank in range(RANKS)]
