"""The audit of a model: both probes, the declaration, the verdicts."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from spectrope.checkpoints.adapters import (
    declared_config,
    evaluating,
    layer_name,
    open_model,
    parse_layers,
    runs_at,
    sees_future,
    trained_length,
)
from spectrope.checkpoints.adapters.load import Dtype
from spectrope.checkpoints.audit.architectures import ambiguity
from spectrope.checkpoints.audit.compare import Discrepancy, compare
from spectrope.checkpoints.audit.declaration import (
    contradictions,
    declared_layer,
    declared_offset,
    layer_type,
)
from spectrope.checkpoints.audit.declared_rope import rope_parameters
from spectrope.checkpoints.audit.encoding import LayerEncoding
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.heads import by_head
from spectrope.checkpoints.audit.measure import measure
from spectrope.checkpoints.audit.nearest import named
from spectrope.checkpoints.audit.paths import path_records
from spectrope.checkpoints.audit.reach import Reach, reach_of
from spectrope.checkpoints.audit.records import (
    AbsoluteRecord,
    Audit,
    LayerRecord,
    LayerVerdict,
    Position,
)
from spectrope.checkpoints.audit.scales import compare_scales
from spectrope.checkpoints.probes.constant_content import LayerKernel, attention_modules, constant_content
from spectrope.checkpoints.probes.constant_token import Absolute, blocks_without, constant_token
from spectrope.console import counted
from spectrope.core import ConfigError, Device, Progress, Watch, choose_device, dtype_name

OPENING = ("allow_download", "trust_remote_code", "allow_pickle")
AMBIGUOUS = ("encoding", "rotated fraction")  # Respects in which a configuration may be read in two ways.
LENGTH = 512  # Positions of an audit, where the model takes as many.
VARIES = 1e-9  # Share of energy from which an input counts as varying over positions.


def audit(
    model: object,
    *,
    length: int | None = None,
    layers: "str | slice | None" = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    paths: bool = False,
    batch: int = 2,
    seed: int = 0,
    watch: Watch | None = None,
    **opening: bool,
) -> Audit:
    """Measure what every attention layer of a model applies, and compare it with its configuration.

    Two probes: one token at every position shows the absolute term, and one random constant vector in the
    place of each layer's input shows the kernel.

    Args:
        model: A Hugging Face model, an `OwnModel`, the folder of a checkpoint, or its id in the local cache.
        length: Positions; None takes 512, or as many as the model takes.
        layers: Of a checkpoint, load and measure these alone: a slice, or "0:4", "-2:", "7"; None takes all.
        dtype: Of a checkpoint, to compute in; "auto" keeps its own.
        device: Of a checkpoint, to compute on.
        paths: Whether to compare the kernels of decoding from a cache, of padded and of packed sequences
            with those of a plain forward pass.
        batch: Random vectors, each one row of the batch.
        seed: Of the random vectors.
        watch: Called with the numbers of layers measured and in all; None shows them in a terminal or a
            notebook.
        opening: What may be done to open a checkpoint: `allow_download`, `trust_remote_code`, `allow_pickle`
            (see `open_model`).

    Raises:
        ConfigError: If `model` is neither a model nor a checkpoint, `length` is below 8 or `batch` below 2,
            the configuration lacks what its architecture needs, or queries or keys are not finite.
        UnsupportedError: If no attention kernel could be observed, or the model does not run at that length.

    Example:
        >>> import spectrope as sp
        >>> from transformers import LlamaConfig, LlamaModel
        >>> sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
        >>> model = LlamaModel(LlamaConfig(vocab_size=50, num_attention_heads=4, **sizes))
        >>> sp.audit(model, length=64, watch=sp.unwatched).to_frame()["verdict"].to_list()
        ['matches', 'matches']
    """
    model = _opened(model, layers, dtype, device, opening)
    length = default_length(model) if length is None else length
    if length < 8:
        raise ConfigError(f"an audit's length must be at least 8; got {length}.")
    if batch < 2:
        raise ConfigError(f"an audit compares at least 2 random vectors; got {batch}.")
    inner = getattr(model, "base_model", model)
    declaration = Declaration(**declared_config(model))
    noise = float(torch.finfo(next(model.parameters()).dtype).eps)
    ahead = partial(sees_future, model)
    shown = counted("auditing") if watch is None else contextlib.nullcontext(watch)
    with evaluating(model), runs_at(length, model), shown as watch:
        modules = attention_modules(inner)
        absolutes = constant_token(inner, modules, length)
        records: list[LayerRecord] = []
        varying = {a.block.rpartition(".")[0]: a.variation > VARIES for a in absolutes}

        def receive(kernel: LayerKernel) -> None:
            require_finite(model, kernel)
            records.append(layer_record(kernel, declaration, ahead, varying, length, noise))
            watch(Progress("audit", len(records), len(modules)))

        watch(Progress("audit", 0, len(modules)))
        unread = constant_content(inner, modules, length, receive, contents=batch, seed=seed)
        served = path_records(model, noise, seed) if paths else ()
    return Audit(
        model=getattr(model.config, "_name_or_path", "") or getattr(model, "name", type(model).__name__),
        architecture=declaration.model_type,
        dtype=dtype_name(next(model.parameters()).dtype),
        noise=noise,
        length=length,
        absolutes=tuple(absolute_record(one, declaration) for one in absolutes),
        layers=compare_scales(records, declaration, noise),
        paths=served,
        unread=unread,
        without=blocks_without(inner, modules),
    )


def _opened(
    model: object,
    layers: "str | slice | None",
    dtype: Dtype,
    device: Device,
    opening: dict[str, bool],
) -> nn.Module:
    """The model that an argument stands for.

    Raises:
        ConfigError: If it stands for none, or options of loading are given for a model that is loaded.
    """
    if isinstance(model, str | Path):
        if unknown := sorted(opening.keys() - OPENING):
            raise ConfigError(
                f"audit has no argument {unknown[0]!r}; those of loading are {', '.join(OPENING)}."
            )
        chosen = parse_layers(layers) if isinstance(layers, str) else layers
        return open_model(model, dtype=dtype, layers=chosen, **opening).to(choose_device(device))
    got = type(model).__name__
    if not isinstance(model, nn.Module) or not hasattr(getattr(model, "config", None), "get_text_config"):
        raise ConfigError(
            "audit takes a Hugging Face model, a module of your own in sp.OwnModel, or the folder or id of a "
            f"checkpoint; got {got}."
        )
    if layers is not None or dtype != "auto" or device != "auto" or opening:
        raise ConfigError(
            f"layers, dtype, device and {', '.join(OPENING)} say how a checkpoint is loaded; got a loaded "
            f"{got}. Give its folder instead."
        )
    return model


def require_finite(model: nn.Module, kernel: LayerKernel) -> None:
    """Refuse queries or keys that are not finite, naming the layer and what in the model is not finite.

    Raises:
        ConfigError: If some are not.
    """
    sides = {"queries": kernel.call.q, "keys": kernel.call.k}
    wrong = [name for name, x in sides.items() if not bool(x.isfinite().all())]
    if not wrong:
        return
    stack, layer = layer_name(kernel.call.module)
    tensors = (*model.named_buffers(), *model.named_parameters())
    causes = (name for name, x in tensors if x.is_floating_point() and not bool(x.isfinite().all()))
    cause = next(causes, "")
    why = f"{cause} is not finite" if cause else "they overflow in this arithmetic; compute in float32"
    raise ConfigError(
        f"layer {f'{stack} {layer}'.strip()}: {' and '.join(wrong)} hold NaN or infinity: {why}."
    )


def default_length(model: nn.Module) -> int:
    """Positions of an audit where none are given."""
    return min(LENGTH, trained_length(model) or LENGTH)


def layer_record(
    kernel: LayerKernel,
    declaration: Declaration,
    ahead: Callable[[str], bool | None],
    varying: dict[str, bool],
    length: int,
    noise: float,
) -> LayerRecord:
    """Measure one layer and compare it with its declaration."""
    module = kernel.call.module
    stack, layer = layer_name(module)
    declaration = declaration.at(layer)
    declared = replace(declared_layer(declaration, stack, layer, length), sees_future=ahead(stack))
    absolute = next((moves for prefix, moves in varying.items() if module.startswith(prefix)), False)
    effective, scale, heads = measure(kernel, declared, absolute, noise)
    findings = compare(declared, effective, length, noise)
    findings = by_head(findings, kernel, declared.turning, length, noise)
    if declared.turning is not None:
        parameters = rope_parameters(declaration, layer_type(declaration, layer))
        findings = named(findings, declaration, parameters, effective.turning, length)
    findings += [
        Discrepancy(what, values, effective.describe(declared.turning and declared.turning.base))
        for what, values in contradictions(declaration, layer)
    ]
    doubt = ambiguity(declaration, layer_type(declaration, layer))
    if doubt:
        findings = [finding for finding in findings if finding.what not in AMBIGUOUS]
    verdict, reason = judge(declared, effective, findings)
    if doubt and verdict != "differs":
        verdict, reason = "declaration ambiguous", doubt
    return LayerRecord(
        module=module,
        stack=stack,
        layer=layer,
        position=_shared([head.position for head in heads]),
        effective=effective,
        declared=declared,
        verdict=verdict,
        findings=tuple(findings) if verdict == "differs" else (),
        reason=reason,
        scale=scale,
        heads=heads,
        reach=layer_reach(declared, effective, declaration, length, noise),
    )


def layer_reach(
    declared: LayerEncoding, effective: LayerEncoding, declaration: Declaration, length: int, noise: float
) -> Reach | None:
    """How far a measured rotation turns, where the configuration states a length."""
    trained = declaration.get("max_position_embeddings", "n_positions", "max_seq_len")
    if effective.turning is None or not trained:
        return None
    base = declared.turning.base if declared.turning else None
    base = base or effective.turning.fit().base
    return reach_of(effective.turning, base, int(trained), length, noise)


def judge(
    declared: LayerEncoding, effective: LayerEncoding, findings: list[Discrepancy]
) -> tuple[LayerVerdict, str]:
    """The verdict on a layer, and why where it is neither a match nor a difference."""
    if declared.kind is None and not findings:
        return "undeclared", "the configuration says nothing that is known here of this layer's encoding"
    if declared.kind == "bucketed bias" and effective.kind == "none":
        return "cannot tell", "the table holds the same value in every bucket"
    if effective.kind == "unknown" and all(finding.what == "encoding" for finding in findings):
        return "cannot tell", "the kernel varies with position, but as no family known here"
    if findings:
        return "differs", ""
    wanted, got = declared.turning, effective.turning
    if wanted is not None and got is not None and got.gain is None and wanted.gain != 1:
        return "cannot tell", "the vectors before rotation were not seen, so their factor is not known"
    return "matches", ""


def absolute_record(absolute: Absolute, declaration: Declaration) -> AbsoluteRecord:
    """Compare the absolute term of a stack with its declaration."""
    varies, declared = absolute.variation > VARIES, declared_offset(declaration)
    rows = absolute.rows.tolist()
    first = rows[0] if varies and rows else None
    consecutive = rows == list(range(rows[0], rows[0] + len(rows))) if rows else True
    findings: list[Discrepancy] = []
    if declared is not None and not varies:
        findings.append(Discrepancy("absolute term", "a learned table", "none"))
    elif declared is not None and first is not None and (first != declared or not consecutive):
        got = str(first) if consecutive else "rows out of order"
        findings.append(
            Discrepancy("first position", f"row {declared}", f"row {got}" if consecutive else got)
        )
    verdict: LayerVerdict = "differs" if findings else "matches"
    if declared is None and varies:
        verdict = "undeclared"
    elif declared is not None and varies and first is None:
        verdict = "cannot tell"
    return AbsoluteRecord(
        block=absolute.block,
        variation=absolute.variation,
        table=absolute.table if varies else "",
        first_row=first,
        declared_row=declared,
        verdict=verdict,
        findings=tuple(findings),
        term=absolute.term if varies else None,
    )


def _shared(positions: list[Position]) -> Position:
    return positions[0] if len(set(positions)) == 1 else "mixed"
