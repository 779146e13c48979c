"""`spectrope train`: one run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from spectrope.console import (
    ROOT,
    Condition,
    DeviceOption,
    Epochs,
    Examples,
    Own,
    RunsRoot,
    Scale,
    bars,
    refuse_given,
    resolve_own,
    say,
    try_own,
    try_task,
    warn_of_failure,
)
from spectrope.core import ConfigError, choose_device, stop_on_signal
from spectrope.encodings import ENCODINGS
from spectrope.lab import Experiment, LearningProbe, experiment, read_experiment, train
from spectrope.tasks import TASKS

PROBES = {"learning": LearningProbe}
REPLACED = ("encoding", "task", "scale", "condition", "seed", "epochs", "examples")  # by a recipe


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train one decoder, or go on with an unfinished run of the same settings."""

    encoding: Annotated[
        str, tyro.conf.arg(help="A name that `spectrope encodings` lists, or file.py:Class.")
    ] = "rope"
    task: Annotated[str, tyro.conf.arg(help=f"{', '.join(TASKS)}, or file.py:Class.")] = "distance"
    scale: Scale = "mini"
    condition: Condition = "controlled"
    seed: Annotated[int, tyro.conf.arg(help="Of data, weights, order and dropout.")] = 0
    epochs: Epochs = None
    examples: Examples = None
    probe: Annotated[
        Literal["learning"] | None,
        tyro.conf.arg(help="Measure on the way how heads learn; weights stay the same."),
    ] = None
    every: Annotated[int, tyro.conf.arg(help="Steps between measurements, with --probe.")] = 100
    recipe: Annotated[
        Path | None,
        tyro.conf.arg(help="JSON file of a whole experiment, in place of the options up to --examples."),
    ] = None
    own: Own = ()
    runs: RunsRoot = ROOT
    device: DeviceOption = "auto"

    def run(self) -> None:
        """Train and print the run's folder last."""
        if self.probe is None:
            refuse_given(self, ("every",), "goes with --probe.")
        one, probe = self.experiment(), PROBES[self.probe](every=self.every) if self.probe else None
        for spec in self._encodings():
            try_own(spec, one.model)
        try_task(one.task)
        device = choose_device(self.device)
        with bars([one.label]) as progress, stop_on_signal() as stop:
            run = train(one, self.runs, device, progress.watch, stop, probe)
        manifest = run.manifest
        accuracy = f"{100 * manifest['test_accuracy']:.1f} % of {one.n_test} held-out examples"
        say(f"{one.label}: {accuracy} (ceiling {100 * manifest['bayes_accuracy']:.1f} %)")
        warn_of_failure(one.label, manifest)
        say(f"Run: {run.path}")

    def experiment(self) -> Experiment:
        """The experiment of the recipe, or of the options."""
        if self.recipe is not None:
            refuse_given(self, REPLACED, f"does not go with --recipe; change it in {self.recipe}.")
            for spec in self.own:
                resolve_own(spec)
            return read_recipe(self.recipe)
        refuse_given(self, ("own",), "goes with --recipe; --encoding and --task take file.py:Class.")
        return experiment(
            self.task,
            self.encoding,
            scale=self.scale,
            condition=self.condition,
            seed=self.seed,
            epochs=self.epochs,
            n_examples=self.examples,
        )

    def _encodings(self) -> list[str]:
        """What the user calls the encoding: one name, or the classes that a recipe needs."""
        if self.recipe is None:
            return [self.encoding]
        return [spec for spec in self.own if resolve_own(spec)[0] is ENCODINGS]


def read_recipe(path: Path) -> Experiment:
    """Read an experiment from a JSON file, such as a run folder's config.

    Raises:
        ConfigError: One line, if the file cannot be read or a field breaks a rule.
    """
    try:
        fields = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"recipe {path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ConfigError(f"recipe {path} is no JSON: {error}.") from None
    except RecursionError:
        raise ConfigError(f"recipe {path} is nested too deep; see recipes/ for examples.") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"recipe {path} must hold one JSON object; see recipes/ for examples.")
    inner = fields.get("config", fields)
    if not isinstance(inner, dict):
        raise ConfigError(f'recipe {path}: "config" must hold a JSON object; got {inner!r}.')
    one = read_experiment(inner)
    if not isinstance(one, Experiment):
        raise ConfigError(f"recipe {path} is of the grokking laboratory; `spectrope grok` trains such.")
    return one
