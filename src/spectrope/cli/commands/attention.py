"""`spectrope attention`: plan and time attention in linear time, with certified errors."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import polars as pl
import tyro
from torch import nn
from tyro.conf import subcommand

from spectrope.checkpoints import (
    Checkpoints,
    checkpoint_folder,
    plan_checkpoint,
    sequences_for,
    trained_length,
)
from spectrope.console import (
    RARE,
    ROOT,
    CertificateOption,
    JsonOption,
    Own,
    RunsRoot,
    counted,
    frame,
    print_json,
    refuse_given,
    say,
)
from spectrope.core import ConfigError, choose_device, require
from spectrope.fast import (
    DEFAULT,
    TOLERANCE,
    Bench,
    Calibrate,
    LayerPlans,
    PlanAim,
    Tolerance,
    certified_plan,
    plan_run,
    read_costs,
    table,
)
from spectrope.front import run_or_checkpoint
from spectrope.store import Certified, Run, check_certificate, weights_and_config, write_certificate

TOKENS = 512


@dataclass(frozen=True, kw_only=True)
class PlanCommand(Checkpoints):
    """Report which heads polynomial attention can compute, within a certified error.

    Examples:
    $ spectrope attention plan RUN --length 65536
    $ spectrope attention plan path/to/checkpoint --tolerance 0.01
    """

    target: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="target", help="Run (id or folder), or checkpoint (folder or cached id)."),
    ]
    length: Annotated[int, tyro.conf.arg(help="Sequence length to plan for, in tokens.")] = 65_536
    tolerance: Tolerance = TOLERANCE
    costs: Annotated[
        Path | None,
        tyro.conf.arg(help="File written by `attention calibrate` (default: built-in costs)."),
        RARE,
    ] = None
    examples: Annotated[
        int, tyro.conf.arg(help="Held-out examples, or sequences, on which logits are measured."), RARE
    ] = 16
    tokens: Annotated[
        int | None,
        tyro.conf.arg(help=f"For checkpoints: tokens per sequence (default: {TOKENS} or the model's limit)."),
        RARE,
    ] = None
    texts: Annotated[
        Path | None,
        tyro.conf.arg(help="For checkpoints: file with one text per line (default: random tokens)."),
        RARE,
    ] = None
    certificate: CertificateOption = None
    json: JsonOption = False
    own: Own = ()
    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Measure the range of each head's logits, and print the kernel chosen for it."""
        require(self.examples >= 2, self, "examples", "at least 2")
        if self.certificate is not None:
            check_certificate(self.certificate)
        costs = DEFAULT if self.costs is None else read_costs(self.costs)
        aim = PlanAim(length=self.length, tolerance=self.tolerance, costs=costs)
        target = run_or_checkpoint(self.target, self.runs, self.allow_download, self.own)
        if isinstance(target, Run):
            why = f"is for checkpoints; {target.path} is a run with its own examples."
            refuse_given(self, ("tokens", "texts", "dtype"), why)
            plans, tokens = plan_run(target, choose_device(self.device), aim, self.examples)
            inputs = [target.path / "manifest.json", *weights_and_config(target.path)]
        else:
            plans, tokens = self._of_checkpoint(target, aim)
            inputs = weights_and_config(checkpoint_folder(target))
        heads = table(plans)
        record = asdict(aim) | {"target": self.target, "tokens": tokens, "heads": heads.to_dicts()}
        if self.json:
            print_json(record)
        else:
            _show_plan(heads, aim, tokens)
        if self.certificate is not None:
            self._certify(self.certificate, certified_plan(plans, aim.tolerance, aim.length, tokens), inputs)

    def _certify(self, path: Path, certified: Certified | None, inputs: list[Path]) -> None:
        """Write what the plan proves.

        Raises:
            ConfigError: If it serves no head by a fast kernel.
        """
        if certified is None:
            raise ConfigError(
                "every head is planned as exact, so there is nothing to certify; raise --tolerance or "
                "--length."
            )
        write_certificate(path, certified, self.target, inputs)
        if not self.json:
            say(f"Certificate: {path}, which `spectrope verify` checks.")

    def _of_checkpoint(self, source: str, aim: PlanAim) -> tuple[LayerPlans, int]:
        model = self.open(source)
        tokens = self._tokens(model)
        require(tokens >= 2, self, "tokens", "at least 2")
        tokenizer = self.tokenizer_for(source, self.texts)
        ids = sequences_for(model, self.texts, tokenizer, self.examples, tokens)
        with counted("planning") as watch:
            return plan_checkpoint(model, ids, aim, watch), tokens

    def _tokens(self, model: nn.Module) -> int:
        return min(TOKENS, trained_length(model) or TOKENS) if self.tokens is None else self.tokens


HEADS = {
    "reach_bound": "range",
    "error_bound": "error",
    "speedup_estimate": "speed-up",
    "choice": "kernel",
}


def _show_plan(heads: pl.DataFrame, aim: PlanAim, tokens: int) -> None:
    fast = heads.filter(pl.col("choice") != "exact")
    say(
        f"Polynomial attention can compute {len(fast)} of {len(heads)} heads at {aim.length:,} tokens, with "
        f"a certified error of at most {aim.tolerance:g} max|v|. Range: largest absolute value of a centred "
        f"logit on the first {tokens} tokens of each sequence; longer sequences are assumed to stay within "
        f"it. Speed-up: of the forward pass, predicted from operation counts ({aim.costs.source}).",
    )
    frame("", heads.drop("reason", "rank").rename(HEADS))
    common = pl.col("reason").str.replace(" on logits up to .*", "")  # the range is in the table
    reasons = heads.filter(common != "").group_by(common, maintain_order=True).len()
    for reason, count in reasons.iter_rows():
        say(f"{count} exact: {reason}.")


AttentionAction = (
    Annotated[PlanCommand, subcommand("plan")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Calibrate, subcommand("calibrate")]
)


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Plan or benchmark linear-time attention.

    Examples:
    $ spectrope attention plan RUN
    $ spectrope attention bench --longest 4096
    """

    action: AttentionAction

    def run(self) -> None:
        """Do what is asked."""
        self.action.run()
