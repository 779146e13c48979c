"""Search for a setting in which ResNet-18 groks on a processor: cheap settings first, a row for each.

`python -m benchmarks.grok_shapes` trains each setting that has no finished row, and stores a row in
`results/grok-shapes.jsonl`: the command that makes the same run, the processor time that it took, and its
course. `--minutes` is the most processor time that one setting gets. A run that is cut off is stored with the
steps that it reached, and trained anew by the next call, which replaces its row.
`--picture FILE.svg` draws the courses of the stored rows and trains nothing.
"""

import argparse
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import torch
import tyro

from spectrope.console import chosen_seeds
from spectrope.core.device import machine
from spectrope.core.errors import Interrupted
from spectrope.grokking.commands.grok_shapes import GrokShapes
from spectrope.grokking.config import ShapesExperiment
from spectrope.lab.experiments import written
from spectrope.lab.job import train
from spectrope.lab.runs import run_for
from spectrope.store import append_record, read_records

ROWS = Path(__file__).parents[1] / "results" / "grok-shapes.jsonl"
FITTED, GROKKED, LASTING = 0.99, 0.95, 3  # Accuracies, and evaluations in a row that must reach them.
BY_ITS_RULE = "by its rule"  # The end of a row that is finished; other rows are trained anew.
KEPT = ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "med", "uniformity", "weight_norm")
DIGITS = 6  # Of the numbers in a row.

SIX = "--sides 0 3 4 5 6 7 --resolution 16 --width 16"
SHORT = f"{SIX} --steps 4000 --evaluate-every 50 --stop-after 500"
LONG = f"{SIX} --steps 12000 --evaluate-every 50 --stop-after 500 --learning-rate 0.0003"
EVERY = "--steps 20000 --evaluate-every 100 --stop-after 500"
FOUR = f"--sides 0 3 4 5 --resolution 16 --width 8 {EVERY}"
FOUR_WIDER = f"--sides 0 3 4 5 --resolution 16 --width 16 {EVERY}"
LONGER = f"{SIX} {EVERY}"
SEARCH = (
    f"{SHORT} --n-train 324 --decay decoupled --weight-decay 0.3",
    f"{LONG} --n-train 324 --decay decoupled --weight-decay 1",
    f"{SHORT} --n-train 648 --weight-decay 0.0001",
    f"{FOUR} --n-train 128 --decay decoupled --weight-decay 0.3",
    f"{FOUR} --learning-rate 0.0003 --n-train 128 --decay decoupled --weight-decay 0.3",
    f"{FOUR} --learning-rate 0.0003 --n-train 128 --decay decoupled --weight-decay 1",
    *(
        f"{FOUR} --n-train 192 --decay decoupled --weight-decay 0.3{seed}"
        for seed in ("", " --seeds 1", " --seeds 2")
    ),
    f"{FOUR} --n-train 160 --decay decoupled --weight-decay 0.3",
    f"{FOUR_WIDER} --n-train 128 --decay decoupled --weight-decay 0.3",
    f"{LONGER} --n-train 648 --decay decoupled --weight-decay 0.3",
    f"{LONGER} --n-train 324 --decay decoupled --weight-decay 0.3",
    f"{LONGER} --n-train 648 --weight-decay 0.0001",
)


def experiment(options: str) -> ShapesExperiment:
    """The run of some options of `spectrope grok-shapes`, which name one seed or none (0)."""
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    command = tyro.cli(GrokShapes, args=shlex.split(options), config=config)
    [seed] = chosen_seeds(command.seeds)
    return command.experiment(seed)


def row(options: str, runs: Path, minutes: float) -> dict[str, Any]:
    """Train one setting and describe what came of it."""
    one, begun = experiment(options), time.process_time()
    ended = BY_ITS_RULE
    try:
        train(one, runs, torch.device("cpu"), stop=lambda: time.process_time() - begun > 60 * minutes)
    except Interrupted:
        ended = f"after {minutes:g} minutes of processor time"
    run = run_for(one, runs)
    progress = run.frame("progress")
    spent = run.manifest["cpu_seconds"] if run.finished else time.process_time() - begun
    course = {name: [rounded(value) for value in progress[name]] for name in ("step", *KEPT)}
    return {
        "command": f"spectrope grok-shapes {options}",
        "config": written(one),
        "ended": ended,
        "steps": course["step"][-1],
        "fitted_at": lasting(course["step"], course["train_accuracy"], FITTED),
        "grokked_at": lasting(course["step"], course["test_accuracy"], GROKKED),
        "best_test_accuracy": max(course["test_accuracy"]),
        "cpu_seconds": round(spent),
        "machine": machine(),
        "progress": course,
    }


def lasting(steps: Sequence[float], accuracies: Sequence[float], least: float) -> float | None:
    """The first of three evaluations in a row that reach an accuracy."""
    reached = [accuracy >= least for accuracy in accuracies]
    places = range(len(reached) - LASTING + 1)
    return next((steps[place] for place in places if all(reached[place : place + LASTING])), None)


def rounded(value: float) -> float:
    """A number with as many digits as a row keeps."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def search(settings: tuple[str, ...], path: Path, runs: Path, minutes: float) -> None:
    """Store a row for each setting that has no finished one."""
    stored = read_records(path)[0] if path.exists() else []
    done = {one["command"] for one in stored if one["ended"] == BY_ITS_RULE}
    for options in settings:
        if f"spectrope grok-shapes {options}" not in done:
            made = row(options, runs, minutes)
            replace_row(path, made)
            print(f"{made['command']}\n    {told(made)}", flush=True)


def replace_row(path: Path, made: dict[str, Any]) -> None:
    """Store a row in place of the one of the same command, if there is one, and else at the end."""
    rows = {one["command"]: one for one in read_records(path)[0]} if path.exists() else {}
    rows[made["command"]] = made
    whole = path.with_name(f"new-{path.name}")
    whole.unlink(missing_ok=True)
    for one in rows.values():
        append_record(whole, one)
    whole.replace(path)


def told(made: dict[str, Any]) -> str:
    """What came of a setting, in a line."""
    fitted, grokked = (
        "never" if made[name] is None else f"at step {made[name]:,}" for name in ("fitted_at", "grokked_at")
    )
    return (
        f"fitted {fitted}, 95 % of the test images {grokked}, best {100 * made['best_test_accuracy']:.1f} %; "
        f"{made['steps']:,} steps, {made['cpu_seconds']:,} s of processor time"
    )


def picture(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw accuracies on the training and on all other images by step, a panel per row."""
    panels = []
    for one in rows:
        config, course = one["config"], one["progress"]
        task, training = config["task"], config["training"]
        points = [
            {"step": step, "images": name, "accuracy": 100 * accuracy}
            for name, column in (("trained on", "train_accuracy"), ("others", "test_accuracy"))
            for step, accuracy in zip(course["step"], course[column], strict=True)
        ]
        kinds, decay = len(task["sides"]), f"{training.get('decay', 'l2')} {training['weight_decay']:g}"
        title = alt.Title(
            f"{task['n_train']} of {kinds**4:,} images, width {config['width']}, seed {config['seed']}",
            subtitle=f"rate {training['learning_rate']:g}, decay {decay}",
        )
        colour = alt.Color("images:N", title="images", scale=alt.Scale(range=["#1a65c8", "#d84a02"]))
        axis = alt.Y("accuracy:Q", title="accuracy, %", scale=alt.Scale(domain=[0, 100]))
        lines = alt.Chart(alt.Data(values=points), title=title).mark_line(strokeWidth=1.5)
        panels.append(lines.encode(x="step:Q", y=axis, color=colour).properties(width=230, height=120))
    alt.concat(*panels, columns=3).save(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, or draw what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--runs", type=Path, default=Path("grok-runs"))
    parser.add_argument("--picture", type=Path)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if chosen.picture:
        picture(read_records(ROWS)[0], chosen.picture)
    else:
        search(SEARCH, ROWS, chosen.runs, chosen.minutes)


if __name__ == "__main__":
    main()
