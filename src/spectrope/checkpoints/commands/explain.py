"""`spectrope explain`: what a finding's code means."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from spectrope.checkpoints.audit.catalogue import fault
from spectrope.console import say


@dataclass(frozen=True, kw_only=True)
class Explain:
    """Explain the code of a finding: symptom, cause, effect by length and fix."""

    code: Annotated[tyro.conf.Positional[str], tyro.conf.arg(help="Such as SPE101.")]

    def run(self) -> None:
        """Print the entry."""
        say(str(fault(self.code)))
