"""`spectrope ablate`: measure how much each head of a run or a checkpoint matters."""

from dataclasses import dataclass
from typing import Annotated, Literal, cast, get_args

import tyro

from spectrope.checkpoints import (
    AblatedModel,
    BatchOption,
    CallMethod,
    Checkpoints,
    HeadCalls,
    SomeLayersOption,
    TaskOption,
    TextsOption,
    TokensOption,
)
from spectrope.console import (
    RARE,
    ROOT,
    JsonOption,
    Own,
    RayOptions,
    RunsRoot,
    print_json,
    refuse_given,
    show,
)
from spectrope.core import ConfigError, require
from spectrope.front import run_or_checkpoint
from spectrope.front.ablate import SEQUENCES, AblatedRun, ablate
from spectrope.lab import (
    EXAMPLES,
    FILLS,
    PROTOCOLS,
    Adaptive,
    Cumulative,
    Exact,
    Method,
    Screen,
    choose_protocol,
)
from spectrope.stats import TargetPrecision, Threshold
from spectrope.store import Run


@dataclass(frozen=True, kw_only=True)
class Ablate(Checkpoints, RayOptions):
    """Measure how much each head matters, by replacing its output.

    For a run, the drop is in held-out accuracy. For the checkpoint of a language model it is in loss, on
    repeated random tokens or on texts. Outputs are replaced before the output projection.

    Examples:
    $ spectrope ablate RUN --fill mean
    $ spectrope ablate path/to/checkpoint --layers 0:4
    """

    target: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="target", help="Run (id or folder), or checkpoint (folder or cached id)."),
    ]
    method: Annotated[
        Literal["exact", "adaptive", "cumulative", "screen", "screened", "screened-adaptive"],
        tyro.conf.arg(
            help="All examples, or fewer; estimates by gradients (screened: large ones measured); or heads "
            "removed cumulatively."
        ),
    ] = "exact"
    fill: Annotated[
        str | None,
        tyro.conf.arg(
            help=f"Replacement for a head's output: {', '.join(FILLS)}, or file.py:Class (default: zero)."
        ),
    ] = None
    protocol: Annotated[
        str,
        tyro.conf.arg(
            help=f"For runs: {', '.join(PROTOCOLS)}. All but controlled reproduce faults of the paper's code."
        ),
        RARE,
    ] = "controlled"
    examples: Annotated[
        int | None,
        tyro.conf.arg(
            help=f"Held-out examples (default: {EXAMPLES}), or sequences for a checkpoint ({SEQUENCES})."
        ),
    ] = None
    half_width: Annotated[
        float | None,
        tyro.conf.arg(help="Adaptive: stop when intervals are at most plus or minus this many points."),
        RARE,
    ] = None
    threshold: Annotated[
        float,
        tyro.conf.arg(help="Adaptive, screened: drop, in points, above which a head is said to cost."),
        RARE,
    ] = 5.0
    task: TaskOption = None
    texts: TextsOption = None
    length: TokensOption = 64
    layers: SomeLayersOption = None
    batch: BatchOption = None
    json: JsonOption = False
    own: Own = ()
    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Ablate, and print the drops; the tables of a run are stored with it."""
        require(self.examples is None or self.examples >= 4, self, "examples", "at least 4")
        target = run_or_checkpoint(self.target, self.runs, self.allow_download, self.own)
        if isinstance(target, Run):
            foreign = ("task", "texts", "length", "layers", "batch", "dtype")
            refuse_given(self, foreign, f"is for checkpoints; {target.path} is a run with its own task.")
            costs = ablate(target, method=self.chosen_method(), device=self.computes_on, engine=self.ray())
        else:
            costs = self._of_checkpoint(target)
        show(costs)
        if self.json:
            print_json(costs.to_dict())

    def _of_checkpoint(self, source: str) -> AblatedRun | AblatedModel | HeadCalls:
        if self.method not in get_args(CallMethod):
            methods = ", ".join(get_args(CallMethod))
            raise ConfigError(f"--method {self.method} is for runs; a checkpoint takes {methods}.")
        if self.method == "exact":
            refuse_given(self, ("threshold",), "goes with --method adaptive, screened or screened-adaptive.")
        here = "is for runs; a checkpoint is measured on this machine."
        refuse_given(self, ("engine", "address", "gpus"), here)
        refuse_given(self, ("protocol",), "is for runs; faults of a paper's code are reproduced there.")
        refuse_given(self, ("half_width",), "is for runs; a checkpoint takes --threshold.")
        if self.task is not None and self.texts is not None:
            raise ConfigError("a checkpoint is scored on either --task or --texts; got both.")
        require(self.batch is None or self.batch >= 1, self, "batch", "at least 1")
        return ablate(
            self.open(source),
            method=cast(CallMethod, self.method),
            threshold=None if self.method == "exact" else self.threshold,
            on=self.texts or self.task,
            tokenizer=self.tokenizer_for(source, self.texts),
            examples=self.examples,
            length=self.length,
            layers=self.chosen(self.layers),
            batch=self.batch,
            fill=self.fill,
            device=self.device,
        )

    def chosen_method(self) -> Method:
        """The method that the options describe."""
        protocol = choose_protocol(self.protocol, self.fill)
        self._refuse_options_of_other_methods()
        if self.method == "adaptive":
            width = self.half_width
            aim = Threshold(self.threshold / 100) if width is None else TargetPrecision(width / 100)
            return Adaptive(aim=aim, protocol=protocol)
        if self.method.startswith("screened"):
            raise ConfigError(
                f"--method {self.method} is for checkpoints; a run takes exact, adaptive, cumulative, screen."
            )
        if self.method == "screen":
            return Screen(fill=protocol.fill, examples=self.examples or EXAMPLES)
        kind = Cumulative if self.method == "cumulative" else Exact
        return kind(protocol=protocol, examples=self.examples or EXAMPLES)

    def _refuse_options_of_other_methods(self) -> None:
        if self.method != "adaptive":
            refuse_given(self, ("half_width", "threshold"), "goes with --method adaptive.")
        else:
            refuse_given(
                self,
                ("examples",),
                "cannot be combined with --method adaptive, which chooses the number of examples.",
            )
            if self.half_width is not None:
                refuse_given(
                    self, ("threshold",), "cannot be combined with --half-width; use one stopping criterion."
                )
        if self.method == "screen":
            refuse_given(
                self, ("protocol",), "cannot be combined with --method screen, which only accepts --fill."
            )
