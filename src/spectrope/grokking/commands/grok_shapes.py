"""`spectrope grok-shapes`: ResNet-18 on images whose sides are to be counted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from spectrope.console import (
    RARE,
    EngineOptions,
    JsonOption,
    OutPage,
    RunsRoot,
    Seeds,
    Settings,
    StopAfter,
    changes_of,
    chosen_seeds,
    print_json,
    say,
    steps_or_never,
)
from spectrope.core import require, with_fields
from spectrope.figures import check_page
from spectrope.grokking.config import Grokked, ShapesExperiment, ShapesTraining
from spectrope.grokking.models.vision import FULL_WIDTH
from spectrope.grokking.shapes_page import write_shapes
from spectrope.grokking.show import records, train_shown
from spectrope.grokking.tasks.distributions import distribution_of
from spectrope.grokking.tasks.shapes import ShapesConfig

LISTED = False


@dataclass(frozen=True, kw_only=True)
class GrokShapes(EngineOptions):
    """Train ResNet-18 to count polygon sides until it generalises.

    Examples:
    $ spectrope grok-shapes --steps 200
    $ spectrope grok-shapes --resolution 16 --seeds 0:3
    """

    sides: Annotated[
        tuple[int, ...], tyro.conf.arg(help="Numbers of sides of the polygons, ascending; 0: an empty cell.")
    ] = (
        0,
        3,
        4,
        5,
    )
    resolution: Annotated[int, tyro.conf.arg(help="Image width and height, in pixels.")] = 32
    n_train: Annotated[int, tyro.conf.arg(help="Number of training combinations of polygons.")] = 128
    distribution: Annotated[
        str, tyro.conf.arg(help="Held-out images: random, square or strip, by their upper polygons.")
    ] = "random"
    k: Annotated[
        int | None,
        tyro.conf.arg(
            help="Hold out images whose upper polygons (square), or whose upper left polygon (strip), have "
            "at most k sides."
        ),
        RARE,
    ] = None
    width: Annotated[int, tyro.conf.arg(help="Channels of the first stage; ResNet-18 has 64.")] = FULL_WIDTH
    steps: Annotated[int, tyro.conf.arg(help="Maximum number of training steps.")] = 1000
    stop_after: StopAfter = "100"
    batch_size: Annotated[int, tyro.conf.arg(help="Batch size, in images."), RARE] = 64
    learning_rate: Annotated[float, tyro.conf.arg(help="Learning rate of Adam.")] = 1e-3
    weight_decay: Annotated[float, tyro.conf.arg(help="Weight decay."), RARE] = 1e-4
    decay: Annotated[
        Literal["l2", "decoupled"],
        tyro.conf.arg(help="Weight decay of Adam (l2: added to the gradient) or of AdamW (decoupled)."),
        RARE,
    ] = "l2"
    evaluate_every: Annotated[int, tyro.conf.arg(help="Evaluation interval, in steps."), RARE] = 20
    source: Annotated[
        Path | None, tyro.conf.arg(help="Folder of a pretrained ResNet with safetensors weights."), RARE
    ] = None
    seeds: Seeds = ("0",)
    set: Annotated[Settings, RARE] = ()
    runs: RunsRoot = Path("grok-runs")
    out: OutPage = Path("grok-shapes.html")
    workers: Annotated[int | None, tyro.conf.arg(help="Parallel runs on a CPU."), RARE] = 1
    json: JsonOption = False

    def run(self) -> None:
        """Run what is not in the run folders yet, print a table, write the report."""
        require(len(self.seeds) > 0, self, "seeds", "at least one")
        check_page(self.out)
        plan = [self.experiment(seed) for seed in chosen_seeds(self.seeds)]
        done = train_shown(plan, self.runs, self)
        write_shapes(done, self.out)
        say(f"Report: {self.out.resolve()}")
        if self.json:
            print_json(records(done) | {"report": str(self.out.resolve())})

    def _half(self) -> int:
        """Half of the most sides, or the fewest if those are more."""
        return max(min(self.sides, default=0), max(self.sides, default=0) // 2)

    def experiment(self, seed: int) -> ShapesExperiment:
        """The experiment that these options describe.

        Raises:
            ConfigError: If a value breaks a rule.
        """
        patience = steps_or_never(self.stop_after)
        experiment = ShapesExperiment(
            task=ShapesConfig(
                sides=self.sides,
                resolution=self.resolution,
                n_train=self.n_train,
                distribution=distribution_of(self.distribution, self.k, default=self._half()),
            ),
            training=ShapesTraining(
                steps=self.steps,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                decay=self.decay,
                evaluate_every=self.evaluate_every,
                stop=None if patience is None else Grokked(steps=patience),
            ),
            source=None if self.source is None else str(self.source.resolve()),
            width=self.width,
            seed=seed,
        )
        return with_fields(experiment, changes_of(self.set))
