"""`spectrope diff`: two checkpoints' effective encodings side by side."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from spectrope.checkpoints.audit import audit, diff
from spectrope.checkpoints.audit.run import default_length
from spectrope.checkpoints.commands.audit import MISMATCH
from spectrope.checkpoints.options import Checkpoints, LayersOption, LengthOption
from spectrope.console import JsonOption, counted, print_json, show


@dataclass(frozen=True, kw_only=True)
class Diff(Checkpoints):
    """Compare the positional encodings that two checkpoints apply.

    No configuration is trusted.

    Learned positions are compared by the vectors and biases that were measured, contents not at all.
    Ends with 0 if every layer applies the same, with 1 if not.

    Examples:
    $ spectrope diff original/ converted/
    $ spectrope diff original/ converted/ --layers 0:4
    """

    first: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="first", help="First checkpoint: a folder, or the id of a cached model."),
    ]
    second: Annotated[tyro.conf.Positional[str], tyro.conf.arg(name="second", help="Second checkpoint.")]
    length: LengthOption = None
    layers: LayersOption = None
    json: JsonOption = False

    def run(self) -> int:
        """Audit both, print what differs, and say by the exit code whether anything does."""
        models = [self.open(source, self.layers) for source in (self.first, self.second)]
        length = min(map(default_length, models)) if self.length is None else self.length
        with counted("auditing") as watch:
            difference = diff(*(audit(model, length=length, watch=watch) for model in models))
        if self.json:
            print_json(difference.to_dict())
        else:
            show(difference)
        return 0 if difference.same else MISMATCH
