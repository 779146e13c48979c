"""`spectrope conform`: an implementation of rotary embeddings against float64."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from spectrope.conformance.implementation import load
from spectrope.conformance.suite import conform
from spectrope.console import JsonOption, counted, print_json, show

LISTED = False
WRONG = 1


@dataclass(frozen=True, kw_only=True)
class Conform:
    """Check an implementation of rotary embeddings against a float64 reference.

    The function takes vectors (batch, heads, tokens, width) and positions (tokens,), and may take base,
    layout, width, scaling and sections. The exit code is 0 if all offered cases are correct, and 1 otherwise.
    The module is imported, so its code is executed.

    Examples:
    $ spectrope conform mymodule:apply_rope
    $ spectrope conform path/to/file.py:apply_rope --json
    """

    function: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="function", help="module:function, or path/to/file.py:function."),
    ]
    json: JsonOption = False

    def run(self) -> int:
        """Check, print, and say by the exit code whether all is right."""
        found = load(self.function)
        with counted("checking") as watch:
            result = conform(found.apply, self.function, watch=watch)
        print_json(result.to_dict()) if self.json else show(result)
        return 0 if result.ok else WRONG
