"""`spectrope extend`: what a longer context does to a run or a checkpoint, and which scaling helps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import polars as pl
import tyro

from spectrope.checkpoints import (
    METHOD_NAMES,
    Checkpoints,
    document_tokens,
    extend_checkpoint,
    long_documents,
)
from spectrope.console import (
    RARE,
    ROOT,
    JsonOption,
    RunsRoot,
    complain,
    counted,
    frame,
    print_json,
    refuse_given,
    show,
)
from spectrope.core import choose_device, require, require_least
from spectrope.front import run_or_checkpoint
from spectrope.lab import EXTRAPOLATED, extrapolate
from spectrope.store import Run

SEARCHED = "longrope"


@dataclass(frozen=True, kw_only=True)
class Extend(Checkpoints):
    """Predict and measure how a run or a checkpoint handles longer contexts.

    For a checkpoint, the command prints the share of each head's logits in coordinate pairs that reach new
    angles and, on your texts, the perplexity beyond the trained length under several scalings of the rotation
    and in a sliding window. For a run, it prints accuracy and loss on longer held-out sequences. Nothing is
    trained.

    Examples:
    $ spectrope extend path/to/checkpoint --factor 4 --texts book.txt
    $ spectrope extend RUN --factor 2 --methods none longrope interpolated
    """

    target: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="target", help="Run (id or folder), or checkpoint (folder or cached id)."),
    ]
    factor: Annotated[float, tyro.conf.arg(help="Ratio of the new context length to the trained one.")] = 4.0
    texts: Annotated[
        tuple[Path, ...],
        tyro.conf.arg(help="For checkpoints: text files, one document each, to measure perplexity on."),
    ] = ()
    methods: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            help=f"Any of: {', '.join(METHOD_NAMES)}; for runs also interpolated. {SEARCHED} is searched "
            "(for checkpoints on the first piece of the texts, which is then not scored)."
        ),
    ] = tuple(name for name in METHOD_NAMES if name != SEARCHED)
    length: Annotated[
        int | None,
        tyro.conf.arg(help="For checkpoints: trained length in tokens (default: the configuration's)."),
    ] = None
    stride: Annotated[
        int | None,
        tyro.conf.arg(help="For checkpoints: stride between sliding windows (default: length / 8)."),
        RARE,
    ] = None
    judge: Annotated[
        str, tyro.conf.arg(help="For checkpoints: scaling method used to find key tokens."), RARE
    ] = "yarn"
    examples: Annotated[int, tyro.conf.arg(help="For runs: held-out examples of each length."), RARE] = (
        EXTRAPOLATED
    )
    runs: RunsRoot = ROOT
    json: JsonOption = False

    def run(self) -> None:
        """Print which bands leave the trained range, and what every method scores."""
        require(self.factor > 1, self, "factor", "above 1")
        require(len(self.methods) > 0, self, "methods", "at least one")
        target = run_or_checkpoint(self.target, self.runs, self.allow_download, ())
        if isinstance(target, Run):
            self._extend_run(target)
        else:
            self._extend_checkpoint(target)

    def _extend_run(self, run: Run) -> None:
        foreign = ("texts", "length", "stride", "judge", "dtype")
        refuse_given(self, foreign, f"is for checkpoints; {run.path} is a run with its own examples.")
        require_least(self, 2, "examples")
        factors, device = (1, self.factor), choose_device(self.device)
        with counted("extending") as watch:
            scores = extrapolate(
                run, factors, self.methods, examples=self.examples, device=device, watch=watch
            )
        unfit = [name for name in self.methods if name not in set(scores["scaling"])]
        if unfit:
            complain(
                f"not applied, since the positions of {run.id} have nothing to scale: {', '.join(unfit)}."
            )
        if self.json:
            print_json({"scores": scores.to_dicts()})
        else:
            title = (
                f"{self.examples} held-out examples of each length, 95 % intervals over them; accuracy is a "
                "fraction, loss is in nats"
            )
            frame(title, scores.drop("examples").with_columns(pl.col(pl.Float64).round(3)))

    def _extend_checkpoint(self, source: str) -> None:
        if self.length is not None:
            require_least(self, 4, "length")
        if not self.texts:
            refuse_given(self, ("methods", "stride", "judge"), "goes with --texts.")
        refuse_given(self, ("examples",), "is for runs; a checkpoint is measured on --texts.")
        documents = long_documents(self.texts)
        model = self.open(source)
        tokenizer = self.tokenizer_for(source, self.texts[0] if self.texts else None)
        with counted("extending") as watch:
            found = extend_checkpoint(
                model,
                self.factor,
                document_tokens(model, tokenizer, documents),
                methods=self.methods,
                length=self.length,
                stride=self.stride,
                judge=self.judge,
                watch=watch,
            )
        if self.json:
            print_json(found.to_dict())
        else:
            show(found)
