"""Labels and scores of grokking runs, in the terminal and on pages."""

from collections.abc import Mapping, Sequence
from typing import Any

from spectrope.figures import Table
from spectrope.grokking.config import Grokked
from spectrope.store import Run

ACCURACIES = {"train %": "train_accuracy", "test %": "test_accuracy", "held out %": "held_out_accuracy"}


def threshold(config: Mapping[str, Any]) -> str:
    """The test accuracy from which a run of a configuration counts as grokked, in percent."""
    stop = config["training"]["stop"]
    return f"{100 * (Grokked().accuracy if stop is None else stop['accuracy']):g} %"


def scores_of(run: Run) -> dict[str, str]:
    """Scores of a finished run by heading; a heading of which this kind of run knows nothing is left out."""
    manifest = run.manifest
    shares = {name: manifest[column] for name, column in ACCURACIES.items() if column in manifest}
    return {
        "seed": str(run.config["seed"]),
        "steps": str(manifest["steps"]),
        "grokked at": "not" if manifest["grokked_at"] is None else str(manifest["grokked_at"]),
        **{name: "" if share is None else f"{100 * share:.1f}" for name, share in shares.items()},
        **({"MED": f"{manifest['med']:.3f}"} if "med" in manifest else {}),
        "norm": f"{manifest['weight_norm']:.1f}",
        "s": f"{manifest['seconds']:.0f}",
    }


def runs_table(runs: Sequence[Run]) -> Table:
    """A row per run."""
    caption = (
        "Test: all pairs that are not used for training. Grokked at: the step from which test accuracy is at "
        f"least {threshold(runs[0].config)}. "
        "Norm: norm of all weights. s: seconds of training."
    )
    return Table("runs", "Runs", caption, [{"run": run.id, **scores_of(run)} for run in runs])
