"""What was run, on which machine, and how to draw it again."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spectrope.store import Run


def about(runs: Sequence[Run]) -> dict[str, list[str]]:
    """What was run, where and when: lines by heading, one for each value that differs between runs."""
    configs, manifests = [run.config for run in runs], [run.manifest for run in runs]
    moments = sorted(_moment(manifest["finished_at"]) for manifest in manifests if "finished_at" in manifest)
    seconds = sum(float(manifest["seconds"]) for manifest in manifests)
    lines = {
        "Condition": _distinct(config["condition"] for config in configs),
        "Scale": _distinct(config["scale"] for config in configs),
        "Seeds": [", ".join(map(str, sorted({int(config["seed"]) for config in configs})))],
        "Model": _distinct(_model(config["model"]) for config in configs),
        "Training": _distinct(map(_training, configs)),
        "Machine": _distinct(_machine(manifest) for manifest in manifests),
        "Software": _distinct(_software(manifest) for manifest in manifests),
        "Finished": _distinct(moments[:1] + moments[-1:]),
        "Training time": [f"{seconds / 60:.1f} minutes, all runs together"],
    }
    return {name: text for name, text in lines.items() if text}


def rebuild_command(runs: Sequence[Run], path: Path) -> str:
    """The command that writes the page again."""
    folders = {run.path.parent for run in runs}
    if len(folders) == 1:
        named = [*(run.id for run in runs), "--runs", str(folders.pop())]
    else:
        named = [str(run.path) for run in runs]
    return shlex.join(["spectrope", "report", *named, "--out", str(path)])


def _distinct(values: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values if value not in ("", None)))


def _moment(text: str) -> str:
    """A time of day without the seconds, in UTC as the manifest has it."""
    return f"{text[:16].replace('T', ' ')} UTC"


def _list(fields: Mapping[str, Any], forms: Mapping[str, str]) -> str:
    """The known fields, each in its form, separated by commas."""
    return ", ".join(
        form.format(fields[name]) for name, form in forms.items() if fields.get(name) is not None
    )


def _model(model: Mapping[str, Any]) -> str:
    forms = {
        "n_layers": "{} layers",
        "n_heads": "{} heads",
        "head_dim": "head_dim {}",
        "d_model": "d_model {}",
        "d_ff": "d_ff {}",
        "dropout": "dropout {}",
    }
    return _list(model, forms)


def _training(config: Mapping[str, Any]) -> str:
    sizes = _list(config, {"n_train": "{:,} training examples", "n_test": "{:,} held out"})
    forms = {"epochs": "{} epochs", "batch_size": "batch {}", "learning_rate": "learning rate {:g}"}
    return f"{config['task']['kind']}: {', '.join(filter(None, (sizes, _list(config['training'], forms))))}"


def _machine(manifest: Mapping[str, Any]) -> str:
    machine = dict(manifest.get("machine", {}))
    if machine.get("accelerator") == "none":
        del machine["accelerator"]
    named = _list(machine, {"processor": "{}", "threads": "{} threads", "accelerator": "{}", "system": "{}"})
    return ", ".join(filter(None, (named, _list(manifest, {"device": "on {}", "precision": "in {}"}))))


def _software(manifest: Mapping[str, Any]) -> str:
    versions = _list(manifest.get("machine", {}), {"python": "Python {}", "torch": "torch {}"})
    return ", ".join(filter(None, (versions, _list(manifest, {"commit": "commit {}"}))))
