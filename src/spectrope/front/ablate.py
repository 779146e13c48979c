"""Ablate heads: measure the drop of each, or silence some inside a `with` block."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import polars as pl
from torch import nn

from spectrope import lab
from spectrope.checkpoints import (
    AblatedModel,
    CallMethod,
    CheckpointFill,
    Content,
    HeadCalls,
    ablate_model,
    call_heads,
    zeroed_heads,
)
from spectrope.console import Shown
from spectrope.core import ConfigError, Device, UnsupportedError, Watch, choose_device, require_type
from spectrope.figures import DROP, Drawing, HeadEffects, head_map
from spectrope.front.arguments import require_callback, require_whole
from spectrope.front.progress import counting, watching
from spectrope.front.targets import AnyTokenizer, Target, opened
from spectrope.lab import EXAMPLES, Exact, HeadAblation, Method, Ray, choose_protocol, experiment_of
from spectrope.models import Decoder
from spectrope.stats import spearman
from spectrope.store import Run, packed

SEQUENCES, LENGTH, THRESHOLD = 32, 64, 5.0
SHOWN = {
    "ablation": ("layer", "head", "drop", "low", "high", "n"),
    "deposit": ("layer", "head", "drop", "gap_low", "share_low", "p_adjusted", "deposit"),
    "adaptive": ("layer", "head", "drop", "drop_low", "drop_high", "n", "saving"),
    "cumulative": ("n_changed", "layer", "head", "single", "drop", "accuracy"),
    "screen": ("layer", "head", "drop", "loss_increase_estimate"),
}
NOTES = {
    "ablation": "low to high: 95 % interval over the n examples, of each head of this one model by itself.",
    "adaptive": (
        "drop_low to drop_high: intervals for the drop over all held-out examples, which hold for all heads "
        "of this one model together with 95 %. A head that was measured on all of them has its exact drop; "
        "they say nothing of new examples. saving: cost of an exact sweep over all held-out examples, "
        "divided by that of this one."
    ),
    "cumulative": (
        "single: drop of the head alone, on the half of the examples that gives the order. drop and accuracy "
        "(a fraction): those of all heads up to the row, on the other half."
    ),
    "screen": "loss_increase_estimate: a first-order estimate, in nats.",
}
HEADS_SHOWN = 12
DRAWN = {"ablation": DROP, "adaptive": replace(DROP, low="drop_low", high="drop_high")}


@dataclass(frozen=True, repr=False)
class AblatedRun(Shown, HeadEffects):
    """Effect of ablating each head of a run's model; stored with the run.

    Args:
        run: The run.
        tables: By name; the first has a row per head.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> costs = sp.ablate(run, watch=sp.unwatched)
        >>> costs.to_frame().height, costs.figure().name
        (24, 'heatmap')
    """

    run: Run
    tables: Mapping[str, pl.DataFrame]

    def to_frame(self) -> pl.DataFrame:
        """A row per head, layer by layer."""
        return next(iter(self.tables.values()))

    def figure(self) -> Drawing:
        """The heat map of the drops.

        Raises:
            UnsupportedError: If heads were not measured one by one, each with an interval.
        """
        kind = next(iter(self.tables)).split("-")[0]
        if kind not in DRAWN:
            raise UnsupportedError(
                f"a heat map needs the interval of every head, which method {kind!r} does not measure; "
                f"sp.figure(run, {kind!r}) draws what it does."
            )
        return Drawing("heatmap", head_map(self.to_frame(), DRAWN[kind]))

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        yield f"Drops in percentage points; layers and heads count from 0; tables in {self.run.path}."
        for name, table in self.tables.items():
            kind = name.split("-")[0]
            shown = table.select(SHOWN[kind])
            ranked = kind in {"ablation", "adaptive", "screen"}
            if ranked:
                shown = shown.sort("drop", descending=True).head(HEADS_SHOWN)
            yield name, shown
            if kind in NOTES:
                yield NOTES[kind]
            if ranked and len(shown) < len(table):
                yield f"{len(shown)} of {len(table)} heads; the table {name!r} has all of them."
            if kind == "screen":
                rho = spearman(table["loss_increase_estimate"].to_numpy(), table["drop"].to_numpy())
                words = "undefined" if rho is None else f"{rho:z.2f}"
                yield f"rank correlation of the estimates with the exact drops: {words}"


def ablate(
    target: Target,
    *,
    fill: str | None = None,
    examples: int | None = None,
    method: Method | CallMethod | None = None,
    threshold: float | None = None,
    on: Content | None = None,
    length: int | None = None,
    layers: slice | None = None,
    batch: int | None = None,
    tokenizer: AnyTokenizer | None = None,
    root: str | Path = "runs",
    device: Device = "auto",
    allow_download: bool = False,
    engine: Ray | None = None,
    watch: Watch | None = None,
) -> AblatedRun | AblatedModel | HeadCalls:
    """Replace the output of each head, before the output projection, and measure the effect.

    For a run, the accuracy on its held-out examples is measured, and tables are stored with the run. For a
    language model, loss and accuracy are measured on repeated random tokens, texts or token ids. Its methods
    other than "exact" only decide which heads cost more accuracy than a threshold, in less time.

    Args:
        target: A run, a Hugging Face model, an `OwnModel`, or the folder or name of a run or a checkpoint.
        fill: Replacement for a head's output. For a run: a name in `FILLS` or `file.py:Class`; for a model:
            "zero", "mean" or "resample". Default: "zero".
        examples: Number of held-out examples of a run (default: 2000), or of sequences of a model (default:
            32).
        method: For runs, instead of `fill` and `examples`: `Exact`, `Adaptive`, `Cumulative` or `Screen` of
            `spectrope.lab`. For models: "exact" (default) measures all heads on all sequences; "adaptive"
            samples sequences until each head is decided; "screened" measures heads in the order of their
            first-order effects, and a random sample of the others as a control; "screened-adaptive" does so
            on as many sequences as each decision needs.
        threshold: For models and methods other than "exact": drop of accuracy, in points, above which a head
            costs (default: 5).
        on: For models: "induction" (default) or "distance", the `Path` of a file with one text per line,
            texts, or token ids of shape (n, t).
        length: Of a model: tokens per sequence (64).
        layers: Of a model: layers whose heads to change; None takes all.
        batch: For models: number of sequences per batch; None chooses a batch that fills the device.
        tokenizer: For models, if `on` contains texts: a tokenizer from transformers; None uses the tokenizer
            of the checkpoint if the target is one.
        root: Folder of the runs, in which a run can be given by the first characters of its id.
        device: Device to compute on; a module is measured where it is.
        allow_download: Whether a checkpoint that is not in the local cache may be downloaded from the Hugging
            Face Hub.
        engine: For runs: a Ray cluster to compute on instead of this machine.
        watch: Progress callback; None shows progress in the terminal or notebook.

    Raises:
        ConfigError: If the target is none of these, or an argument does not apply to this kind of target.
        UnsupportedError: If its heads cannot be observed, or the fill is undefined for it.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> costs = sp.ablate(run, watch=sp.unwatched).to_frame()
        >>> costs.columns[:3]
        ['layer', 'head', 'fill']
    """
    require_callback(watch)
    require_whole(1, examples=examples, batch=batch)
    require_whole(2, length=length)
    if layers is not None:
        require_type(layers, slice, "layers", "a slice, such as slice(0, 4)")
    place = choose_device(device)
    known, tokenizer = opened(target, root, device, tokenizer, allow_download=allow_download)
    of_models = {"on": on, "length": length, "layers": layers, "batch": batch}
    if isinstance(known, Run):
        refuse(of_models, "models", f"run {known.id} has its own task")
        refuse({"threshold": threshold}, "models", "for a run, use Adaptive(aim=Threshold(0.05)) of sp.lab")
        chosen = _method(method, fill, examples)
        with watching(watch, [experiment_of(known).label]) as shown:
            if engine is None:
                return AblatedRun(known, lab.ablate(known, place, chosen, shown))
            tables = engine.compute(partial(lab.ablate_apart, packed(known), chosen), shown)
            lab.keep_drops(known, tables)
            return AblatedRun(known, tables)
    refuse({"engine": engine}, "runs", "a model's heads are measured on this machine")
    require_language_model(known)
    calling = _calling(method, threshold)
    with counting(watch, "ablating") as shown:
        measure = ablate_model if calling is None else partial(call_heads, **calling)
        return measure(
            known,
            "induction" if on is None else on,
            tokenizer=tokenizer,
            examples=SEQUENCES if examples is None else examples,
            length=LENGTH if length is None else length,
            layers=slice(None) if layers is None else layers,
            fill=_model_fill(fill),
            batch=batch,
            watch=shown,
        )


@contextlib.contextmanager
def ablated(model: nn.Module, heads: Sequence[tuple[Any, ...]] | tuple[Any, ...]) -> Iterator[nn.Module]:
    """Context manager that sets the outputs of some heads to zero; the model is restored on exit.

    Outputs are zeroed before the output projection, in all computations with the model inside the block,
    including gradients.

    Args:
        model: A decoder of this package, a Hugging Face model, or an `OwnModel`.
        heads: One or several pairs (layer, head), counted from 0; for encoder-decoder models, triples (role,
            layer, head) with role "encoder", "decoder" or "cross".

    Raises:
        ConfigError: If the model has no such head.
        UnsupportedError: If it is not such a model, or its heads cannot be observed.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> model = sp.load_model(run)
        >>> with sp.ablated(model, [(0, 3), (2, 1)]):
        ...     silenced = sum(len(block.heads._forward_hooks) for block in model.blocks)
        >>> silenced, sum(len(block.heads._forward_hooks) for block in model.blocks)
        (2, 0)
    """
    heads = _pairs(heads)
    if isinstance(model, Decoder):
        if wrong := [head for head in heads if len(head) != 2]:
            raise ConfigError(f"a head of this model is named (layer, head); got {wrong[0]!r}.")
        with lab.ablated(model, *(HeadAblation(layer, head) for layer, head in heads)):
            yield model
        return
    require_language_model(model)
    with zeroed_heads(model, heads):
        yield model


def _pairs(heads: Any) -> list[tuple[Any, ...]]:
    """Heads as a list of tuples, each with its role, if any, before two whole numbers.

    Raises:
        ConfigError: If these are none.
    """
    listed = _sequence(heads)
    if listed and not isinstance(listed[-1], Sequence):
        listed = [listed]
    pairs = [tuple(_sequence(head) or ()) for head in listed or ()]
    numbers = [part for pair in pairs for part in pair if not isinstance(part, str)]
    if listed is None or not all(pairs) or not all(type(number) is int for number in numbers):
        raise ConfigError(f"heads must be pairs of layer and head, such as [(0, 3)]; got {heads!r}.")
    return pairs


def _sequence(value: Any) -> list[Any] | None:
    """What a sequence holds; None if it is none, as text is none."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def refuse(arguments: Mapping[str, Any], of: str, why: str) -> None:
    """Refuse arguments that would have no effect.

    Raises:
        ConfigError: If one of them is not None.
    """
    for name, value in arguments.items():
        if value is not None:
            raise ConfigError(f"{name} is for {of}; {why}.")


def require_language_model(model: nn.Module) -> None:
    """Raise an error for modules that are neither Hugging Face models nor `OwnModel`.

    Raises:
        ConfigError: If it is no module.
        UnsupportedError: If it is neither a Hugging Face model nor an `OwnModel`, or a decoder, which is
            measured as part of its run.
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"a model must be a torch.nn.Module; got {type(model).__name__}. sp.load_model opens a run's."
        )
    if isinstance(model, Decoder):
        raise UnsupportedError("a Decoder has no data by itself; give its run.")
    if getattr(model, "config", None) is None:
        raise UnsupportedError(
            f"{type(model).__name__} is no Hugging Face model; say where its attention is with sp.OwnModel."
        )


def _method(method: Method | CallMethod | None, fill: str | None, examples: int | None) -> Method:
    if method is not None:
        require_type(
            method, get_args(Method), "method", "Exact(), Adaptive(), Cumulative() or Screen() of sp.lab"
        )
        refuse({"fill": fill, "examples": examples}, "ablation without a method", "the method has its own")
        return cast(Method, method)
    return Exact(
        protocol=choose_protocol("controlled", fill), examples=EXAMPLES if examples is None else examples
    )


def _calling(method: Method | CallMethod | None, threshold: float | None) -> dict[str, Any] | None:
    """How the heads of a model are called, or None where all are measured on all sequences."""
    if method is not None and method not in get_args(CallMethod):
        names = ", ".join(get_args(CallMethod))
        raise ConfigError(f"method of a model must be one of {names}; got {method!r}.")
    if method in (None, "exact"):
        refuse({"threshold": threshold}, "methods that call heads", "'exact' measures the drop of each")
        return None
    chosen = THRESHOLD if threshold is None else threshold
    require_type(chosen, (int, float), "threshold", "a number of points")
    if not 0 < chosen < 100:
        raise ConfigError(f"threshold must be above 0 and below 100 points; got {chosen:g}.")
    return {"method": method, "threshold": float(chosen)}


def _model_fill(fill: str | None) -> CheckpointFill:
    known = get_args(CheckpointFill)
    if fill is not None and fill not in known:
        raise ConfigError(f"a checkpoint's heads are filled with {', '.join(known)}; got {fill!r}.")
    return cast(CheckpointFill, fill or "zero")
