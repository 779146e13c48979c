"""`spectrope explain`: what a finding's code means."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from spectrope.checkpoints.audit.catalogue import fault
from spectrope.console import say


@dataclass(frozen=True, kw_only=True)
class Explain:
    """Explain a finding of the audit: symptom, cause, effect by length, and fix.

    Examples:
    $ spectrope explain SPE101
    $ spectrope explain SPE108
    """

    code: Annotated[tyro.conf.Positional[str], tyro.conf.arg(help="Code of a finding, such as SPE101.")]

    def run(self) -> None:
        """Print the entry."""
        say(str(fault(self.code)))
