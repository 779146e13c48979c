"""The audit of a model: both probes, the declaration, the verdicts."""

import contextlib
import math
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from spectrope.checkpoints.adapters import (
    POOLS,
    attention_implementations,
    declared_config,
    evaluating,
    fixed_positions,
    is_sound_encoder,
    omitted_layers,
    open_model,
    parse_layers,
    runs_at,
    scale_of,
    short_length,
    trained_length,
)
from spectrope.checkpoints.adapters.compressed import compressing
from spectrope.checkpoints.adapters.load import Dtype
from spectrope.checkpoints.adapters.parts import as_part, models_within, shown_name
from spectrope.checkpoints.adapters.sparse import attention_for, full_attention_up_to
from spectrope.checkpoints.adapters.towers import is_tower, other_towers
from spectrope.checkpoints.audit.absolutes import (
    absolute_record,
    absolute_remedies,
    unrepaired,
    with_later_rows,
)
from spectrope.checkpoints.audit.architectures import unexercised
from spectrope.checkpoints.audit.capacity import require_memory
from spectrope.checkpoints.audit.conversion import conversion_notes
from spectrope.checkpoints.audit.decays import LinearAudit
from spectrope.checkpoints.audit.declaration import declared_clip
from spectrope.checkpoints.audit.declared_scale import talking_alone
from spectrope.checkpoints.audit.far import NOWHERE, look_far, with_far, with_far_encoding
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.further import FurtherPasses, not_exercised, with_further
from spectrope.checkpoints.audit.indexing import IndexerAudit
from spectrope.checkpoints.audit.layers import beyond, remedies_of
from spectrope.checkpoints.audit.predictions import measure_impacts
from spectrope.checkpoints.audit.probe import BothProbes
from spectrope.checkpoints.audit.records import Audit, VisionRecord
from spectrope.checkpoints.audit.scales import compare_scales
from spectrope.checkpoints.audit.serving import (
    by_default,
    not_decoded,
    served_model,
    served_tokens,
    serving_records,
    uncrossed,
)
from spectrope.checkpoints.audit.unread_fields import unread_fields
from spectrope.checkpoints.audit.unread_weights import unread_weights
from spectrope.checkpoints.audit.vision import vision_records
from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.checkpoints.probes.constant_token import blocks_without
from spectrope.console import counted
from spectrope.core import ConfigError, Device, SpectropeError, Watch, choose_device, dtype_name

OPENING = ("allow_download", "trust_remote_code", "allow_pickle")
LATER = "serving modes, which are only checked if nothing differs in a plain forward pass"
IN_BLOCKS = "serving modes in block-sparse attention"
CLIPPING = "the clipping of queries, keys and values (clip_qkv)"
TALKING = "the factor on products that heads mix (talking_head)"
OF_SOUNDS = "what convolutions before the layers say of the position; padded, chunked and other sounds"
SHORTEST = 16  # Tokens of a text.
READ_BY_SHAPE = frozenset({"cpmant", "squeezebert"})  # A length that is the width would hide the axes.
LENGTH = 512  # Positions of an audit, where the model takes as many.


def audit(
    model: object,
    *,
    part: str | None = None,
    length: int | None = None,
    layers: "str | slice | None" = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    serving_modes: bool | None = None,
    reach: bool = True,
    batch: int = 2,
    seed: int = 0,
    text: Sequence[int] | None = None,
    watch: Watch | None = None,
    **opening: bool,
) -> Audit:
    """Measure what every attention layer of a model applies, and compare it with its configuration.

    Two probes are used: one token at every position reveals the absolute term, and one random constant vector
    instead of each layer's input reveals the kernel.

    Args:
        model: A Hugging Face model of texts, an encoder of sounds, an `OwnModel`, the folder of a checkpoint,
            or its id in the local cache.
        part: Dotted name of a model within it that is audited by itself, such as "model.encoder" of Whisper.
        length: Number of positions; None means 512, or the maximum of the model if that is smaller.
        layers: For checkpoints: layers to load and measure, as a slice or as "0:4", "-2:" or "7"; None
            selects all.
        dtype: For checkpoints: floating-point type of the computation; "auto" is the checkpoint's.
        device: For checkpoints: device to compute on.
        serving_modes: Whether to compare kernels and outputs of attention in decoding from caches, beam
            search, chunked prefill, padding, packing, with embeddings in the place of tokens and with special
            tokens with those of a plain forward pass. None does so if no layer differs, and omits serving
            modes in which the model does not run; with True they leave the audit incomplete.
        reach: Whether to probe positions beyond `length`, up to those that the configuration declares.
        batch: Number of random vectors, one per row of the batch.
        seed: Seed of the random vectors.
        text: Tokens on which the impact of findings is measured, at least 16; None takes random ones.
        watch: Progress callback, called with the number of measured layers and the total; None shows progress
            in the terminal or notebook.
        opening: Permissions for opening a checkpoint: `allow_download`, `trust_remote_code` and
            `allow_pickle` (see `open_model`).

    Raises:
        ConfigError: If `model` is neither a model nor a checkpoint or has no such part, `length` is below 8,
            `batch` below 2, or `text` below 16, the audit needs more memory than is available, the
            configuration lacks what its architecture needs, or queries or keys are not finite.
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
    whole = contextlib.nullcontext(model) if part is None else as_part(model, part)
    with whole as model:
        return _audit(model, length, serving_modes, reach, batch, seed, text, watch)


def _audit(
    model: nn.Module,
    length: int | None,
    serving_modes: bool | None,
    reach: bool,
    batch: int,
    seed: int,
    text: Sequence[int] | None,
    watch: Watch | None,
) -> Audit:
    """The same of a model that is opened."""
    if is_tower(model):
        _refuse_of_texts(length, serving_modes, text)
        return _of_tower(model, batch, seed)
    length = default_length(model) if length is None else length
    sounds = is_sound_encoder(model)
    if sounds:
        _require_sound(model, length, serving_modes, text)
    config: Any = model.config
    least = max(8, short_length(model)) if config.model_type in POOLS else 8
    if length < least:
        raise ConfigError(f"an audit's length must be at least {least}; got {length}.")
    if config.model_type in READ_BY_SHAPE and length == config.hidden_size:
        raise ConfigError(
            f"an audit's length must differ from the width of {config.model_type!r}, by which its axes are "
            f"told apart; got {length}, which is its width."
        )
    if batch < 2:
        raise ConfigError(f"an audit compares at least 2 random vectors; got {batch}.")
    if text is not None and len(text) < SHORTEST:
        raise ConfigError(f"an impact is measured on at least {SHORTEST} tokens of a text; got {len(text)}.")
    inner = getattr(model, "base_model", model)
    declaration = Declaration(**declared_config(model))
    dtype_used = _dtype(inner)
    noise = float(torch.finfo(dtype_used).eps)
    shown = counted("auditing") if watch is None else contextlib.nullcontext(watch)
    with evaluating(model), runs_at(length, model), attention_for(model, length), shown as watch:
        modules = attention_modules(inner)
        probe = BothProbes(model, inner, declaration, noise, batch, seed)
        require_memory(probe, modules, length)
        probed = probe.measured(modules, length, watch)
        absolutes, records, remedies = probed.absolutes, probed.records, probed.remedies
        compared = compare_scales(records, declaration, noise)
        every = [remedies_of(one, remedies[one.module], inner) for one in compared]
        trained = trained_length(model)
        reach = reach and not sounds
        far = look_far(inner, declaration, compared, length, trained, noise, seed) if reach else NOWHERE
        compared = tuple(with_far(one, far) for one in compared)
        every = [known + beyond(one, known, inner) for one, known in zip(compared, every, strict=True)]
        passes = FurtherPasses(probe, length, compared)
        further = passes.findings()
        compared, known = tuple(with_further(one, further) for one in compared), every
        if reach:
            compared = tuple(with_far_encoding(one, far, declaration, length, trained) for one in compared)
        reason = "it was found in a further pass, and an impact is computed for what the first one finds"
        every = [some + beyond(one, some, inner, reason) for one, some in zip(compared, known, strict=True)]
        embedded = tuple(absolute_record(one, declaration, noise) for one in absolutes)
        entering = [
            absolute_remedies(one, record, inner, declaration)
            for one, record in zip(absolutes, embedded, strict=True)
        ]
        if reach:
            measured = partial(probe.absolutes, modules)
            embedded = with_later_rows(embedded, measured, inner, declaration, trained or 0, noise)
        entering = [
            known + beyond(one, known, inner, unrepaired(one))
            for one, known in zip(embedded, entering, strict=True)
        ]
        every = [*entering, *every]
        linear = LinearAudit(inner, declaration, modules, length, noise)
        decays = linear.records(cached=serving_modes is not False)
        indexing = IndexerAudit(inner, declaration, modules, length, noise, batch, seed)
        indexed = indexing.records()
        right = all(one.verdict != "differs" for one in (*compared, *embedded))
        wanted = not sounds and (right if serving_modes is None else serving_modes)
        with attention_for(model, 0):  # So few tokens get full attention.
            tokens, names = served_tokens(model, declaration, compared, length), _whole_names(model, inner)
            firsts = {
                f"{_prefix(model, inner)}{one.table}": int(one.rows[0]) for one in absolutes if one.table
            }
            served, notes = (), ()
            if wanted:
                whole = served_model(model, names, firsts, noise, seed, tokens, length - 2)
                served = (*serving_records(whole), *not_decoded(whole))
                if serving_modes is None:
                    served = tuple(by_default(whole, one) for one in served)
                notes = conversion_notes(whole) if right else ()
        vision, unseen = _beside_text(model, batch, seed)
        measured = measure_impacts(model, [one for some in every for one in some], length, noise, seed, text)
    impacts = iter(measured)
    blocks = (IN_BLOCKS,) if served and full_attention_up_to(inner) else ()
    refused = () if serving_modes else tuple(one for one in served if one.reason)
    return Audit(
        model=shown_name(model),
        architecture=declaration.model_type,
        dtype=dtype_name(dtype_used),
        noise=noise,
        length=length,
        absolutes=embedded,
        layers=compared,
        far=far,
        impacts=tuple(tuple(next(impacts) for _ in some) for some in every),
        serving_modes=tuple(one for one in served if one not in refused),
        served_tokens=tokens if served else 0,
        unserved=(LATER,)
        if serving_modes is None and not right and not sounds
        else (*map(str, refused), *blocks, *(uncrossed(compared, tokens) if served else ())),
        notes=notes,
        unread=(*probed.unread, *passes.unread),
        without=blocks_without(inner, [*modules, *(one.module for one in decays)]),
        untried=tuple(probed.untried),
        unexercised=(
            *unexercised(declaration),
            *not_exercised(inner, length),
            *passes.left_out,
            *indexing.unread(indexed),
            *_compressed(inner),
            *((CLIPPING,) if declared_clip(declaration) else ()),
            *((TALKING,) if talking_alone(declaration) else ()),
            *((OF_SOUNDS,) if sounds else ()),
        ),
        decays=decays,
        vision=vision,
        unseen=unseen,
        indexers=indexed,
        further=tuple(passes.had),
        ignored=(*unread_fields(inner, declaration, compared), *unread_weights(model, modules)),
        omitted=omitted_layers(model),
        **_library(model),
    )


def _compressed(model: nn.Module) -> tuple[str, ...]:
    """Keys that do not belong to one token, in words; nothing if there are none."""
    names = compressing(model)
    return (f"compressed keys that follow those of the tokens ({', '.join(names)})",) if names else ()


def _whole_names(model: nn.Module, inner: nn.Module) -> list[str]:
    """Dotted names of attention modules within the whole model."""
    return [f"{_prefix(model, inner)}{name}" for name in attention_modules(inner)]


def _prefix(model: nn.Module, inner: nn.Module) -> str:
    """What stands before dotted names within the inner model."""
    return next(f"{name}." * bool(name) for name, part in model.named_modules() if part is inner)


def _dtype(inner: nn.Module) -> torch.dtype:
    """The type of the arithmetic on texts, by their embeddings; towers for other inputs may have another."""
    table = None
    with contextlib.suppress(AttributeError, NotImplementedError):
        table = inner.get_input_embeddings()  # pyright: ignore[reportCallIssue]
    of_texts = table if isinstance(table, nn.Module) and any(True for _ in table.parameters()) else inner
    return next(of_texts.parameters()).dtype


def _beside_text(model: nn.Module, batch: int, seed: int) -> tuple[tuple[VisionRecord, ...], str]:
    """Records of the vision towers of a model of texts, and which parts for other inputs are not read."""
    audited = models_within(model)
    others = [
        f"{name}, which takes other inputs than text" + f" (audit it as part {name})" * (name in audited)
        for name in other_towers(model)
    ]
    try:
        return vision_records(model, batch, seed), "; ".join(others)
    except SpectropeError as error:
        return (), "; ".join([str(error).rstrip("."), *others])


def _of_tower(model: nn.Module, batch: int, seed: int) -> Audit:
    """The audit of a model that is a vision tower."""
    config: Any = model.config
    dtype = next(model.parameters()).dtype
    records = vision_records(model, batch, seed)
    return Audit(
        model=shown_name(model),
        architecture=config.model_type,
        dtype=dtype_name(dtype),
        noise=float(torch.finfo(dtype).eps),
        length=math.prod(records[0].grid),
        absolutes=(),
        layers=(),
        vision=records,
        **_library(model),
    )


def _library(model: nn.Module) -> dict[str, Any]:
    """What the library runs the attention of a model with, and its version."""
    attention = attention_implementations(model)
    return {"attention": attention, "transformers": version("transformers") if attention else ""}


def _require_sound(
    model: nn.Module, length: int, serving_modes: bool | None, text: Sequence[int] | None
) -> None:
    """Refuse what an encoder of sounds does not take, and measure how much sound makes so many positions.

    Raises:
        ConfigError: If it takes one length alone, and another is given, or what applies to texts is.
    """
    name = type(model).__name__
    given = {"serving_modes": bool(serving_modes), "text": text is not None}
    if wrong := next((option for option, is_given in given.items() if is_given), None):
        raise ConfigError(f"{name} is audited on a sound, not on tokens, so {wrong} does not apply.")
    if (fixed := fixed_positions(model)) not in (None, length):
        raise ConfigError(
            f"{name} takes sounds of {fixed} positions alone, so length must be that; got {length}."
        )
    scale_of(model)


def _refuse_of_texts(length: int | None, serving_modes: bool | None, text: Sequence[int] | None) -> None:
    """Refuse options that do not apply to a vision tower.

    Raises:
        ConfigError: If one is given.
    """
    given = {"length": length is not None, "serving_modes": bool(serving_modes), "text": text is not None}
    if wrong := next((name for name, is_given in given.items() if is_given), None):
        raise ConfigError(
            f"a vision tower is audited on a picture, not on tokens, so {wrong} does not apply."
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
        target = choose_device(device)
        by_layer = target.type == "cpu"
        return open_model(model, dtype=dtype, layers=chosen, by_layer=by_layer, **opening).to(target)
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


def default_length(model: nn.Module) -> int:
    """Positions of an audit where none are given: so many that block-sparse attention is in use."""
    if (fixed := fixed_positions(model)) is not None:
        return fixed
    blocked, trained = full_attention_up_to(model), trained_length(model) or LENGTH
    longer, usual = blocked + LENGTH // 8, min(LENGTH, trained)
    config: Any = model.config
    if config.model_type in READ_BY_SHAPE and usual == config.hidden_size:
        usual -= 1
    return longer if blocked >= LENGTH and longer <= trained else usual
