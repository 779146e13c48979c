"""`spectrope explain`: explain the code of a finding."""

from dataclasses import asdict, dataclass
from typing import Annotated

import tyro

from spectrope.checkpoints.audit.catalogue import fault
from spectrope.console import JsonOption, print_json, say

LISTED = False


@dataclass(frozen=True, kw_only=True)
class Explain:
    """Explain a finding of the audit: symptom, cause, effect and fix.

    Examples:
    $ spectrope explain SPE101
    $ spectrope explain SPE108
    """

    code: Annotated[tyro.conf.Positional[str], tyro.conf.arg(help="Code of a finding, such as SPE101.")]
    json: JsonOption = False

    def run(self) -> None:
        """Print the entry."""
        entry = fault(self.code)
        say(str(entry))
        if self.json:
            print_json(asdict(entry))
