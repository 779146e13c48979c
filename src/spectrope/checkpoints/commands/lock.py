"""`spectrope lock`: keep what a checkpoint applies in a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.checkpoints.lock import FILE, lock, write_lock
from spectrope.checkpoints.lock.opening import name_from
from spectrope.checkpoints.options import Checkpoints, ContentsOption, LayersOption, PartOption
from spectrope.console import RARE, JsonOption, counted, print_json, say, table
from spectrope.core import to_dict
from spectrope.store import check_place

COLUMNS = ("layer", "applies", "verdict")


@dataclass(frozen=True, kw_only=True)
class Lock(Checkpoints):
    """Record the encodings that a checkpoint applies, for `check`.

    Examples:
    $ spectrope lock path/to/checkpoint
    $ spectrope lock path/to/large/checkpoint --layers 0:2 --without-serving-modes
    """

    model: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="model", help="Folder of a checkpoint, or id of a cached model."),
    ]
    out: Annotated[Path, tyro.conf.arg(help="Lock file to write.")] = Path(FILE)
    part: PartOption = None
    layers: LayersOption = None
    length: Annotated[int | None, tyro.conf.arg(help="Positions (default: 128, or the model's limit).")] = (
        None
    )
    contents: ContentsOption = 2
    without_serving_modes: Annotated[
        bool,
        tyro.conf.arg(help="Skip the serving modes: caches, chunks, padding, packing, ends of texts."),
        RARE,
    ] = False
    json: JsonOption = False

    def run(self) -> int:
        """Measure, write, and print a row per layer."""
        check_place(self.out)
        model = self.open(self.model, self.layers, part=self.part)
        with counted("measuring") as watch:
            held = lock(
                model,
                length=self.length,
                serving_modes=not self.without_serving_modes,
                contents=self.contents,
                name=name_from(self.model, self.out),
                layers_taken=self.layers or "",
                watch=watch,
            )
        write_lock(held, self.out)
        if self.json:
            print_json(to_dict(held))
            return 0
        rows = [(one.name, one.described, one.verdict) for one in held.every_layer]
        table(f"{held.named}, {held.length} positions in {held.dtype}", COLUMNS, rows)
        for one in held.every_layer:
            for finding in one.findings:
                say(f"layer {one.name}, locked with this finding: {finding}")
        say(f"Lock: {self.out}")
        return 0
