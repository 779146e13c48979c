"""`spectrope extend`: what a longer context does to a checkpoint, and which scaling helps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

from spectrope.checkpoints.adapters import encoded
from spectrope.checkpoints.extension.extend import ALL_METHODS, extend_checkpoint
from spectrope.checkpoints.extension.rotations import METHODS
from spectrope.checkpoints.language import read_texts
from spectrope.checkpoints.options import Checkpoints
from spectrope.console import RARE, JsonOption, counted, print_json, refuse_given, show
from spectrope.core import require, require_least

ALL = 2**31  # Tokens of a text, at most.


@dataclass(frozen=True, kw_only=True)
class Extend(Checkpoints):
    """Predict and measure how a checkpoint handles longer contexts.

    Names, per head, the share of logits in coordinate pairs that meet new angles. On your texts, prints the
    perplexity of tokens beyond the trained length under several scalings of the rotation, and of the model as
    it is in a sliding window. Nothing is trained or written.

    Examples:
    $ spectrope extend path/to/checkpoint --factor 4
    $ spectrope extend path/to/checkpoint --factor 4 --texts book.txt
    $ spectrope extend path/to/checkpoint --texts book.txt --methods none yarn longrope
    """

    checkpoint: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="checkpoint", help="Folder, or id of a cached model."),
    ]
    factor: Annotated[float, tyro.conf.arg(help="Ratio of the new context length to the trained one.")] = 4.0
    texts: Annotated[
        tuple[Path, ...], tyro.conf.arg(help="Text files, one document each, to measure perplexity on.")
    ] = ()
    methods: Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            help=f"Any of: {', '.join(ALL_METHODS)}. The last one searches on the first piece of the texts, "
            "which is then not scored, and has to be asked for."
        ),
    ] = tuple(METHODS)
    length: Annotated[
        int | None, tyro.conf.arg(help="Trained length in tokens (default: the configuration's).")
    ] = None
    stride: Annotated[
        int | None,
        tyro.conf.arg(help="Stride between sliding windows, in tokens (default: an eighth of a window)."),
        RARE,
    ] = None
    judge: Annotated[str, tyro.conf.arg(help="Scaling method used to find key tokens."), RARE] = "yarn"
    json: JsonOption = False

    def run(self) -> None:
        """Print which bands leave the trained range and, with texts, what every method scores."""
        require(self.factor > 1, self, "factor", "above 1")
        require(len(self.methods) > 0, self, "methods", "at least one")
        if self.length is not None:
            require_least(self, 4, "length")
        if not self.texts:
            refuse_given(self, ("methods", "stride", "judge"), "goes with --texts.")
        documents = ["\n".join(read_texts(path)) for path in self.texts]
        model = self.open(self.checkpoint)
        tokenizer = self.tokenizer_for(self.checkpoint, self.texts[0] if self.texts else None)
        rows = encoded(model, tokenizer, documents, ALL) if tokenizer is not None and documents else []
        with counted("extending") as watch:
            found = extend_checkpoint(
                model,
                self.factor,
                [torch.tensor(row) for row in rows],
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
