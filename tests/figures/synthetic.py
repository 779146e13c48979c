"""Run folders whose numbers are made up, in the shape that training and ablation leave behind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from spectrope.figures import FIGURES, figure_spec, write_spec
from spectrope.store import Run, open_run

ENCODINGS = ("nope", "sinusoidal", "learned", "random", "t5", "relative", "alibi", "rope")
TASKS = ("distance", "counting")
TRAINED = [name for name in FIGURES if FIGURES[name].needs in ("metrics", "runs", "ablation")]
FINAL = {"nope": 0.06, "sinusoidal": 0.41, "learned": 0.88, "random": 0.62, "t5": 0.97, "relative": 0.985}
MACHINE = {
    "processor": "Example CPU @ 2.00GHz",
    "threads": 2,
    "capability": "AVX512",
    "accelerator": "none",
    "python": "3.11.2",
    "torch": "2.13.0",
    "system": "Linux",
}


def config(encoding: str, task: str, seed: int, **changes: Any) -> dict[str, Any]:
    """A configuration like an experiment's."""
    return {
        "encoding_name": encoding,
        "task": {"kind": task, "vocabulary": 128, "max_length": 32},
        "model": {
            "d_model": 64,
            "n_layers": 3,
            "n_heads": 8,
            "head_dim": 16,
            "d_ff": 128,
            "dropout": 0.1,
            "encoding": {"kind": encoding, "head_dim": 16},
        },
        "training": {"epochs": 6, "batch_size": 128, "learning_rate": 0.003, "betas": [0.9, 0.98]},
        "n_train": 14000,
        "n_test": 6000,
        "scale": "mini",
        "condition": "controlled",
        "seed": seed,
    } | changes


def metrics(encoding: str, task: str, seed: int, epochs: int = 6) -> pl.DataFrame:
    """Accuracies that rise from chance to an encoding's final one, and losses that fall."""
    rng = np.random.default_rng([seed, *encoding.encode(), *task.encode()])
    final = FINAL.get(encoding, 0.995) if task == "distance" else 0.93 + 0.05 * rng.random()
    rows = []
    for epoch in range(epochs + 1):
        progress = 1 / (1 + np.exp(-1.5 * (epoch - 2.2 + 0.3 * rng.normal())))
        for split, shift in (("train", 0.01), ("test", 0.0)):
            accuracy = float(
                np.clip(0.04 + (final - 0.04) * progress * (epoch > 0) + shift * rng.random(), 0, 1)
            )
            loss = float(3.1 * (1 - accuracy) + 0.02 * rng.random())
            rows.append(
                {"epoch": epoch, "step": 109 * epoch, "split": split, "loss": loss, "accuracy": accuracy}
            )
    return pl.DataFrame(rows)


def ablation(encoding: str, task: str, seed: int, layers: int = 3, heads: int = 8) -> pl.DataFrame:
    """Small drops of both signs; with rotation on distance, one head of the first layer that carries all."""
    rng = np.random.default_rng([1, seed, *encoding.encode(), *task.encode()])
    intact = float(metrics(encoding, task, seed).filter(pl.col("split") == "test")["accuracy"][-1])
    drops = rng.gamma(0.7, 2.0, (layers, heads)) - 0.6
    if encoding == "rope" and task == "distance":
        drops[0, seed % heads] = 71.3
    drops = np.minimum(drops, 100 * intact)
    return pl.DataFrame(
        {
            "layer": layer,
            "head": head,
            "fill": "zero",
            "intact": intact,
            "ablated": intact - drops[layer, head] / 100,
            "drop": drops[layer, head],
            "low": drops[layer, head] - 1.5,
            "high": drops[layer, head] + 1.5,
            "n": 2000,
        }
        for layer in range(layers)
        for head in range(heads)
    )


def manifest(frame: pl.DataFrame, task: str) -> dict[str, Any]:
    """What training writes last."""
    last = {split: frame.filter(pl.col("split") == split).row(-1, named=True) for split in ("train", "test")}
    return {
        "finished_at": "2025-06-01T10:00:00+00:00",
        "seconds": 41.5,
        "cpu_seconds": 41.5,
        "commit": "0123456789ab",
        "device": "cpu",
        "precision": "float32",
        "machine": MACHINE,
        "bayes_accuracy": 1.0 if task == "distance" else 0.994,
        "train_accuracy": last["train"]["accuracy"],
        "test_accuracy": last["test"]["accuracy"],
        "test_loss": last["test"]["loss"],
        "n_parameters": 118_420,
        "peak_memory_mib": 512.3,
    }


def make_run(root: Path, encoding: str, task: str = "distance", seed: int = 0, **changes: Any) -> Run:
    """One finished and ablated run."""
    run = open_run(root, config(encoding, task, seed, **changes), data_version=1)
    history = metrics(encoding, task, seed)
    run.write_frame("metrics", history)
    run.write_frame("ablation", ablation(encoding, task, seed))
    run.finish(manifest(history, task))
    return run


def make_store(
    root: Path,
    encodings: Sequence[str] = ENCODINGS,
    tasks: Sequence[str] = TASKS,
    seeds: Sequence[int] = (0,),
) -> list[Run]:
    """A finished run for each task, seed and encoding."""
    return [make_run(root, e, task, seed) for task in tasks for seed in seeds for e in encodings]


def save_figure(runs: Sequence[Run], name: str, path: Path) -> Path:
    """One figure of some runs as a file."""
    return write_spec(figure_spec(runs, name)[1], path)
