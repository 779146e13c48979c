"""Panels of the grokking laboratory: courses, embeddings at some moments, and the table of pairs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl
from jaxtyping import Float

from spectrope.core import from_dict
from spectrope.figures import Marks, Panel, exact, legend
from spectrope.grokking.tasks.modular import ModularConfig
from spectrope.store import Run

SPLITS = {"train": "trained on", "test": "not trained on", "held_out": "held out"}
COLOURS = ("#464646", "#d84a02", "#1a65c8")
OUTCOMES = {
    "trained, right": "#c9c9c4",
    "trained, wrong": "#464646",
    "not trained, right": "#61abfb",
    "not trained, wrong": "#d84a02",
}
MOMENTS_SHOWN, WAVES_SHOWN = 4, 2


def course_panels(runs: Sequence[Run]) -> list[Panel]:
    """Accuracy and loss of each split by step, a thin line per run; losses of 0 are left out."""
    return [
        Panel("", "accuracy, %", {"runs": _course(runs, "accuracy", "accuracy, %", 100.0)}, 220),
        Panel("", "loss", {"runs": _course(runs, "loss", "loss", 1.0, alt.Scale(type="log"))}, 220),
    ]


def measure_panels(runs: Sequence[Run], columns: Mapping[str, str]) -> list[Panel]:
    """A panel per progress measure, a line per run, beside the step at which the run grokked."""
    grokked = _grokked(runs)
    scores = {f"{split}_{score}" for split in SPLITS for score in ("loss", "accuracy")}
    return [
        Panel("", text, {"runs": _measure(runs, name), **grokked}, 130)
        for name, text in columns.items()
        if name not in scores
    ]


def embedding_panels(run: Run) -> list[Panel]:
    """First operands' embeddings on their two principal axes at some moments, coloured by residue."""
    return [
        Panel("", f"step {step}", {"residues": _scatter(principal(of_a), range(len(of_a)))}, 220)
        for step, of_a in _shown(run).items()
    ]


def circle_panels(run: Run) -> list[Panel]:
    """The planes of the strongest waves at the end, at some moments; waves go round the operation's group."""
    cycle = from_dict(ModularConfig, run.config["task"]).build().cycle().tolist()
    moments = {step: of_a[cycle] for step, of_a in _shown(run).items()}
    return [
        Panel("", f"frequency {k}, step {step}", {"residues": _scatter(in_wave(of_a, k), cycle)}, 220)
        for k in strongest_waves(list(moments.values())[-1])
        for step, of_a in moments.items()
    ]


def pair_panels(run: Run) -> list[Panel]:
    """Every pair, by what it was for and whether the answer is right."""
    names = list(OUTCOMES)
    right = pl.col("answer") == pl.col("label")
    outcome = (
        pl.when(pl.col("trains"))
        .then(pl.when(right).then(pl.lit(names[0])).otherwise(pl.lit(names[1])))
        .otherwise(pl.when(right).then(pl.lit(names[2])).otherwise(pl.lit(names[3])))
    )
    pairs = run.frame("pairs").select("a", "b", "label", "answer", outcome.alias("outcome"))
    scale = alt.Scale(domain=names, range=list(OUTCOMES.values()))
    chart = alt.Chart().mark_rect()
    drawn = chart.encode(
        x=alt.X("a:O", title="a", axis=_few(pairs["a"])),
        y=alt.Y("b:O", title="b", axis=_few(pairs["b"]), sort="descending"),
        color=alt.Color("outcome:N", title=None, scale=scale, legend=legend()),
        tooltip=[alt.Tooltip(f"{name}:O") for name in ("a", "b", "label", "answer")],
    )
    return [Panel("", f"seed {run.config['seed']}", {"pairs": Marks(pairs.to_dicts(), drawn)}, 460)]


def principal(embeddings: Float[np.ndarray, "p c"]) -> Float[np.ndarray, "p 2"]:
    """Coordinates on the two principal axes of the centred embeddings."""
    centred = embeddings - embeddings.mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    return _in_plane(u[:, :2] * s[:2])


def strongest_waves(embeddings: Float[np.ndarray, "p c"]) -> list[int]:
    """The frequencies over residues that carry most of the embeddings, the strongest first."""
    power = (np.abs(np.fft.rfft(embeddings, axis=0)[1:]) ** 2).sum(1)
    return [int(k) + 1 for k in np.argsort(power)[::-1][:WAVES_SHOWN]]


def in_wave(embeddings: Float[np.ndarray, "p c"], k: int) -> Float[np.ndarray, "p 2"]:
    """Coordinates in the plane spanned by the cosine and the sine part of frequency k."""
    wave = np.fft.rfft(embeddings, axis=0)[k]
    plane, _ = np.linalg.qr(np.stack([wave.real, wave.imag], 1))
    return _in_plane((embeddings - embeddings.mean(0)) @ plane)


def _in_plane(places: Float[np.ndarray, "p c"]) -> Float[np.ndarray, "p 2"]:
    """Coordinates in a plane; embeddings of one dimension lie on its first axis."""
    return np.pad(places, ((0, 0), (0, 2 - places.shape[1])))


def _course(
    runs: Sequence[Run], quantity: str, title: str, factor: float, up: alt.Scale | None = None
) -> Marks:
    rows = [
        {"step": step, "split": told, "seed": run.config["seed"], "value": factor * value}
        for run in runs
        for split, told in SPLITS.items()
        for step, value in _by_step(run, f"{split}_{quantity}")
        if up is None or value > 0
    ]
    named = [name for name in SPLITS.values() if any(row["split"] == name for row in rows)]
    scale = alt.Scale(domain=named, range=list(COLOURS[: len(named)]))
    line = alt.Chart().mark_line(strokeWidth=1.4)
    drawn = line.encode(
        x=_steps(),
        y=alt.Y("value:Q", title=title, scale=up or alt.Scale()),
        color=alt.Color("split:N", title=None, scale=scale, legend=legend()),
        detail="seed:N",
        tooltip=[alt.Tooltip("split:N"), alt.Tooltip("seed:O"), alt.Tooltip("step:Q"), exact("value", title)],
    )
    return Marks(rows, drawn)


def _measure(runs: Sequence[Run], name: str) -> Marks:
    rows = [
        {"step": step, "seed": run.config["seed"], "value": value}
        for run in runs
        for step, value in _by_step(run, name)
    ]
    line = alt.Chart().mark_line(strokeWidth=1.4, color=COLOURS[0])
    drawn = line.encode(
        x=_steps(),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False)),
        detail="seed:N",
        tooltip=[alt.Tooltip("seed:O"), alt.Tooltip("step:Q"), exact("value", name, ".4~f")],
    )
    return Marks(rows, drawn)


def _by_step(run: Run, column: str) -> list[tuple[int, float]]:
    """A column of the progress table where it has values; nothing if this kind of run has no such column."""
    table = run.frame("progress")
    return table.select("step", column).drop_nulls().rows() if column in table.columns else []


def _grokked(runs: Sequence[Run]) -> dict[str, Marks]:
    """Where runs grokked; nothing where none did."""
    steps = [run.manifest["grokked_at"] for run in runs]
    rows = [{"step": step} for step in steps if step is not None]
    rule = alt.Chart().mark_rule(strokeDash=[3, 3], color=COLOURS[1], opacity=0.7)
    return {"grokked": Marks(rows, rule.encode(x=_steps()))} if rows else {}


def _scatter(places: Float[np.ndarray, "m 2"], residues: Iterable[int]) -> Marks:
    rows = [
        {"residue": residue, "x": float(x), "y": float(y)}
        for residue, (x, y) in zip(residues, places, strict=True)
    ]
    reach = 1.05 * float(np.abs(places).max()) or 1.0
    hidden = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)
    scale = alt.Scale(domain=[-reach, reach], nice=False)
    dots = alt.Chart().mark_circle(size=46)
    drawn = dots.encode(
        x=alt.X("x:Q", scale=scale, axis=hidden),
        y=alt.Y("y:Q", scale=scale, axis=hidden),
        color=alt.Color("residue:Q", scale=alt.Scale(scheme="viridis"), legend=None),
        tooltip=[alt.Tooltip("residue:Q")],
    )
    return Marks(rows, drawn)


def _moments(run: Run) -> dict[int, Float[np.ndarray, "p c"]]:
    """First operands' embeddings by step."""
    tensors, _ = run.read_tensors("moments")
    moments = {int(name.split(".")[0]): values for name, values in tensors.items() if name.endswith(".of_a")}
    return {step: moments[step].double().numpy() for step in sorted(moments)}


def _shown(run: Run) -> dict[int, Float[np.ndarray, "p c"]]:
    """A few of the moments, from the first to the last."""
    kept = _moments(run)
    steps = list(kept)
    places = np.unique(np.linspace(0, len(steps) - 1, MOMENTS_SHOWN).round().astype(int))
    return {steps[place]: kept[steps[place]] for place in places}


def _steps() -> alt.X:
    return alt.X("step:Q", title="step", scale=alt.Scale(nice=False))


def _few(residues: pl.Series) -> Any:
    """An axis of residues with a tick every ten."""
    return alt.Axis(values=[r for r in residues.unique().to_list() if r % 10 == 0], labelAngle=0)
