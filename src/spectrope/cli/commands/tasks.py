"""`spectrope tasks`: list tasks, or print their cards."""

from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from spectrope.cli.lists import shown_members
from spectrope.console import JsonOption, print_json, refuse_given, say

LISTED = False  # The help of `train` names it.
PACKAGES = {"spectrope.tasks": "Tasks, for `train --task` and `compare --tasks`"}


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """List or describe the tasks on which decoders are trained.

    A card shows what a task asks, an example, its size, and the best possible accuracy.

    Examples:
    $ spectrope tasks
    $ spectrope tasks distance counting --scale paper
    """

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(
            name="task", help="Names, or file.py:Class, whose cards are printed (default: list all)."
        ),
    ] = ()
    scale: Annotated[str, tyro.conf.arg(help="Size that a card shows: mini, small, mid or paper.")] = "mini"
    condition: Annotated[
        str, tyro.conf.arg(help="Condition that a card shows: controlled, described or released.")
    ] = "controlled"
    json: JsonOption = False

    def run(self) -> None:
        """Print the list, or cards."""
        if not self.names:
            refuse_given(self, ("scale", "condition"), "goes with the name of a task.")
        record = self._cards() if self.names else _listed()
        if self.json:
            print_json(record)

    def _cards(self) -> list[dict[str, Any]]:
        from spectrope.cli.task_cards import shown_task  # Loads torch, which the list does without.

        return [shown_task(name, self.scale, self.condition) for name in self.names]


def _listed() -> list[dict[str, str]]:
    """Print a line for each task."""
    entries = shown_members(PACKAGES)
    say("`spectrope tasks NAME` prints a card: an example, sizes, the best possible accuracy.")
    return entries
