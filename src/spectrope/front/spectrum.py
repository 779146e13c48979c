"""Spectra of the heads of a run or a model, or of an encoding by itself."""

import re
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import Tensor

from spectrope import lab
from spectrope.attention import ATTENTIONS, Latent
from spectrope.checkpoints import LENGTH, ModelSpectrum, ModelTerms, spectrum_of_model
from spectrope.core import (
    ConfigError,
    Device,
    Watch,
    attempted,
    choose_device,
    is_foreign,
    is_ours,
    no_such_field,
    place_of,
    require_type,
)
from spectrope.encodings import (
    ENCODINGS,
    Encoding,
    EncodingConfig,
    combination,
    is_encoding_class,
    split_sizes,
)
from spectrope.front.ablate import refuse, require_language_model
from spectrope.front.arguments import require_callback, require_whole
from spectrope.front.progress import counting, watching
from spectrope.front.spectrum_show import EncodingSpectrum, RunSpectrum, RunTerms
from spectrope.front.targets import AnyTokenizer, Target, opened
from spectrope.lab import (
    AnyEncoding,
    EncodingKernel,
    Measurement,
    encoding_kernels,
    experiment,
    experiment_of,
    kernel_tables,
)
from spectrope.models import DecoderConfig
from spectrope.store import Run

POSITIONS, HEADS, EXAMPLES, DRAWS = 512, 8, 64, 199
Spectra = RunSpectrum | ModelSpectrum | RunTerms | ModelTerms | EncodingSpectrum


def spectrum(
    target: Target | AnyEncoding,
    *,
    examples: int | None = None,
    draws: int | None = None,
    length: int | None = None,
    heads: int | None = None,
    on: Path | Sequence[str] | Tensor | None = None,
    layers: slice | None = None,
    batch: int | None = None,
    quantities: str | Sequence[str] = (),
    terms: bool = False,
    tokenizer: AnyTokenizer | None = None,
    root: str | Path = "runs",
    device: Device = "auto",
    allow_download: bool = False,
    watch: Watch | None = None,
) -> Spectra:
    """Measure the spectra of the heads of a run or a model, or bound the spectrum of an encoding.

    Args:
        target: A run, a Hugging Face model, an `OwnModel`, the folder or name of a run or a checkpoint; or an
            encoding: its name, `file.py:Class`, its class or configuration, or the module itself. A string
            that names an encoding is read as an encoding; a `Path` never is.
        examples: Number of held-out examples of a run, the longest ones, or of sequences of a model (default:
            64).
        draws: Of a run or a model: permutations in the test of Toeplitz shares (199).
        length: Positions of an encoding (512), or tokens per sequence of a model (64).
        heads: Of an encoding that is named or configured (those of its text or configuration, or 8).
        on: Of a model: a `Path` of a file with a text per line, texts, or token ids of shape (n, t); None
            draws tokens.
        layers: Of a model: layers to measure; None takes all.
        batch: For models: number of sequences per forward pass; None uses all.
        quantities: For runs and models: one or several additional quantities, as `file.py:Class`; the file is
            executed.
        terms: Of a run or a model: whether to split logits into the terms of content and position (Eq. 8 of
            arXiv 2505.13027) instead of measuring spectra.
        tokenizer: For models, if `on` contains texts: a tokenizer from transformers; None uses the tokenizer
            of the checkpoint if the target is one.
        root: Folder of the runs, in which a run can be given by the first characters of its id.
        device: Device to compute on; a module is measured where it is.
        allow_download: Whether a checkpoint that is not in the local cache may be downloaded from the Hugging
            Face Hub.
        watch: Progress callback; None shows progress in the terminal or notebook.

    Raises:
        ConfigError: If the target is none of these, or an argument is for another kind.
        UnsupportedError: If positions are not equally spaced, or no attention kernel could be observed.

    Example:
        >>> import spectrope as sp
        >>> bounds = sp.spectrum("alibi", length=32, heads=2).to_frame()
        >>> bounds.select("heads", "kind").rows()
        [('0', 'bias'), ('1', 'bias')]
    """
    require_callback(watch)
    require_whole(1, examples=examples, draws=draws, batch=batch, heads=heads)
    require_whole(2, length=length)
    if layers is not None:
        require_type(layers, slice, "layers", "a slice, such as slice(0, 4)")
    require_type(quantities, Sequence, "quantities", "a name or several")
    quantities = (quantities,) if isinstance(quantities, str) else quantities
    if terms and quantities:
        raise ConfigError("quantities apply to spectra, but terms=True only measures the terms of Eq. 8.")
    contents = {"on": on, "layers": layers, "batch": batch}
    if is_encoding(target):
        refuse(
            contents
            | {
                "examples": examples,
                "draws": draws,
                "quantities": quantities or None,
                "terms": terms or None,
                "tokenizer": tokenizer,
                "root": None if root == "runs" else root,
                "device": None if device == "auto" else device,
                "allow_download": allow_download or None,
            },
            "runs or models",
            "an encoding has no content",
        )
        if isinstance(target, Encoding):
            refuse({"heads": heads}, "encodings that are named or configured", "this one is built")
        return spectrum_of_encoding(target, POSITIONS if length is None else length, heads)
    refuse({"heads": heads}, "encodings", "a model has its own")
    place = choose_device(device)
    try:
        known, tokenizer = opened(target, root, device, tokenizer, allow_download=allow_download)
    except ConfigError as error:
        near = get_close_matches(target, ENCODINGS, n=1) if isinstance(target, str) else []
        hint = f" If you meant an encoding: did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{error}{hint}") from None
    examples, draws = EXAMPLES if examples is None else examples, DRAWS if draws is None else draws
    if isinstance(known, Run):
        refuse(contents | {"length": length}, "models", f"run {known.id} has its own examples")
        plan = Measurement(examples=examples, draws=draws, quantities=tuple(quantities))
        with watching(watch, [experiment_of(known).label]) as shown:
            if terms:
                return RunTerms(known, plan.mark, lab.terms(known, place, plan, shown))
            return RunSpectrum(known, plan.mark, lab.spectrum(known, place, plan, shown))
    require_language_model(known)
    length = LENGTH if length is None else length
    for name, value, least in (("examples", examples, 2), ("draws", draws, 1), ("length", length, 2)):
        if value < least:
            raise ConfigError(f"{name} must be at least {least}; got {value}.")
    with counting(watch, "measuring") as shown:
        return spectrum_of_model(
            known,
            on,
            tokenizer=tokenizer,
            examples=examples,
            length=length,
            layers=slice(None) if layers is None else layers,
            draws=draws,
            batch=batch,
            quantities=quantities,
            terms=terms,
            watch=shown,
        )


def is_encoding(target: object) -> bool:
    """Whether something is an encoding, or the name of one."""
    if isinstance(target, str):
        first = re.split(r"[:+@]", target)[0]
        return (
            is_foreign(target) or first in ENCODINGS or first in ATTENTIONS or combination(target) is not None
        )
    return isinstance(target, Encoding | EncodingConfig) or is_encoding_class(target)


def spectrum_of_encoding(target: Any, length: int, heads: int | None = None) -> EncodingSpectrum:
    """Toeplitz matrices of an encoding, or of latent attention with this encoding, in a causal layer.

    Args:
        target: Its name, `mla` or `mla+NAME` for latent attention, or a class, configuration or module.
        length: Number of positions.
        heads: Number of heads of an encoding that is named or configured; None takes those of its text or
            configuration, or 8.

    Raises:
        UnsupportedError: If it has none, with the reason.
        ConfigError: If your own encoding fails, or two sizes contradict each other.
    """
    if isinstance(target, Encoding):
        cls, measure = type(target), lambda: _kernels_of_object(target, length, heads or HEADS)
    else:
        target, own = _own_sizes(target, heads)
        if heads is not None and own.get("n_heads", heads) != heads:
            raise ConfigError(
                f"heads={heads}, but the encoding has n_heads={own['n_heads']}; give one of them."
            )
        sizes = {"n_heads": heads or HEADS, "head_dim": DecoderConfig.head_dim} | own
        named = experiment("distance", target).model
        for size in own:
            if named.encoding.size(size) is None and not isinstance(named.attention, Latent.Config):
                raise no_such_field(type(named.encoding), size)
        model = replace(named, max_length=length, n_layers=1, **sizes)
        cls, measure = ENCODINGS[model.encoding.kind], lambda: _kernels_of_model(model)
    kernels = measure() if is_ours(cls) else attempted(place_of(cls), measure)
    return EncodingSpectrum(tuple(kernels), kernel_tables(kernels))


def _own_sizes(target: Any, heads: int | None) -> tuple[Any, dict[str, int]]:
    """A text without its sizes, or a configuration; and the heads and width that it has.

    Raises:
        ConfigError: If a text sets another size.
    """
    if isinstance(target, str):
        target, sizes = split_sizes(target)
        for name in sizes.keys() - {"n_heads", "head_dim"}:
            raise ConfigError(f"{name} is not set in a spectrum, of a causal layer with as many positions.")
        return target, sizes
    if not isinstance(target, EncodingConfig):
        return target, {}
    held = {name: target.size(name) for name in ("n_heads", "head_dim")}
    if heads is not None and held["n_heads"] == type(target)().size("n_heads"):
        del held["n_heads"]  # Which a configuration has, whether it was given or not.
    return target, {name: size for name, size in held.items() if size is not None}


def _kernels_of_object(encoding: Encoding, length: int, heads: int) -> list[EncodingKernel]:
    """Kernels of an encoding that is built already, with the sizes in its configuration."""
    config = encoding.config
    heads, width = config.size("n_heads") or heads, config.size("head_dim") or DecoderConfig.head_dim
    return encoding_kernels(encoding, length, heads, width, causal=True)


def _kernels_of_model(model: DecoderConfig) -> list[EncodingKernel]:
    """Kernels of the encoding of a model with one layer."""
    (built,) = model.attention.encode(model.encoding.build_layers(1))
    width = model.head_dim if built.config is model.encoding else built.config.head_dim
    if isinstance(model.attention, Latent.Config):
        width = model.head_dim + model.attention.rotary_dim
    return encoding_kernels(built, model.max_length, model.n_heads, width, causal=True)
