"""`spectrope train`: train one run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from spectrope.console import (
    RARE,
    ROOT,
    ConditionOption,
    DeviceOption,
    DropPositions,
    Epochs,
    Examples,
    JsonOption,
    Own,
    PrecisionOption,
    RunsRoot,
    ScaleOption,
    Settings,
    changes_of,
    print_json,
    refuse_given,
    resolve_own,
    say,
)
from spectrope.core import ConfigError
from spectrope.front.train import train
from spectrope.lab import Experiment, LearningProbe, experiment_of, read_decoder
from spectrope.store import Run

PROBES = {"learning": LearningProbe}
REPLACED = (
    "encoding",
    "task",
    "scale",
    "condition",
    "seed",
    "epochs",
    "examples",
    "set",
    "precision",
    "drop_positions",
)  # by a recipe


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train one decoder, or resume its unfinished run.

    Examples:
    $ spectrope train --encoding alibi --task counting
    $ spectrope train --set learning_rate=0.001 n_layers=4
    """

    encoding: Annotated[
        str, tyro.conf.arg(help="Name listed by `spectrope encodings`, or file.py:Class.")
    ] = "rope"
    task: Annotated[str, tyro.conf.arg(help="Name listed by `spectrope tasks`, or file.py:Class.")] = (
        "distance"
    )
    scale: ScaleOption = "mini"
    condition: ConditionOption = "controlled"
    seed: Annotated[int, tyro.conf.arg(help="Seed of data, initial weights, batch order and dropout.")] = 0
    epochs: Epochs = None
    examples: Examples = None
    set: Settings = ()
    precision: PrecisionOption = "auto"
    drop_positions: DropPositions = None
    probe: Annotated[
        Literal["learning"] | None,
        tyro.conf.arg(help="Also record how heads learn, without changing the results."),
        RARE,
    ] = None
    every: Annotated[int, tyro.conf.arg(help="Steps between records, with --probe."), RARE] = 100
    recipe: Annotated[
        Path | None,
        tyro.conf.arg(help="JSON file of an experiment, in place of the options above."),
    ] = None
    own: Own = ()
    runs: RunsRoot = ROOT
    device: DeviceOption = "auto"
    json: JsonOption = False

    def run(self) -> None:
        """Train and print the run's folder last."""
        if self.probe is None:
            refuse_given(self, ("every",), "goes with --probe.")
        probe = PROBES[self.probe](every=self.every) if self.probe else None
        run = self._trained(probe)
        manifest, one = run.manifest, experiment_of(run)
        accuracy = f"{100 * manifest['test_accuracy']:.1f} % of {one.n_test} held-out examples"
        if (ignored := one.model.ignored_label) is not None:
            accuracy += f", those of label {ignored} left out"
        say(
            f"{one.label}: {accuracy} (ceiling {100 * manifest['bayes_accuracy']:.1f} %), matrix products in "
            f"{manifest['precision']}"
        )
        say(f"Run: {run.path}")
        if self.json:
            print_json({"run": run.id, "path": str(run.path), "config": run.config, "manifest": manifest})

    def _trained(self, probe: LearningProbe | None) -> Run:
        """The run of the recipe, or of the options."""
        if self.recipe is not None:
            refuse_given(self, REPLACED, f"does not go with --recipe; change it in {self.recipe}.")
            for spec in self.own:
                resolve_own(spec)
            return train(read_recipe(self.recipe), root=self.runs, device=self.device, probe=probe)
        refuse_given(self, ("own",), "goes with --recipe; --encoding and --task take file.py:Class.")
        return train(
            self.encoding,
            self.task,
            scale=self.scale,
            condition=self.condition,
            seed=self.seed,
            epochs=self.epochs,
            n_examples=self.examples,
            settings=changes_of(self.set, self.precision, self.drop_positions),
            root=self.runs,
            device=self.device,
            probe=probe,
        )


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
        raise ConfigError(f"recipe {path} is not valid JSON: {error}.") from None
    except RecursionError:
        raise ConfigError(f"recipe {path} is nested too deep; see recipes/ for examples.") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"recipe {path} must hold one JSON object; see recipes/ for examples.")
    inner = fields.get("config", fields)
    if not isinstance(inner, dict):
        raise ConfigError(f'recipe {path}: "config" must hold a JSON object; got {inner!r}.')
    return read_decoder(inner, f"recipe {path}")
