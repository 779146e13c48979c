"""`spectrope diff`: the effective encodings of checkpoints side by side, also for a purpose."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from torch import nn

from spectrope.checkpoints.adapters import is_checkpoint
from spectrope.checkpoints.adapters.lora import base_of, is_adapter, merged
from spectrope.checkpoints.audit import audit, diff
from spectrope.checkpoints.audit.run import default_length
from spectrope.checkpoints.commands.audit import EXIT_CODES, MISMATCH
from spectrope.checkpoints.options import Checkpoints, LayersOption, LengthOption
from spectrope.checkpoints.pairs.run import compatible
from spectrope.console import JsonOption, counted, print_json, refuse_given, show
from spectrope.core import ConfigError

ANSWERS = {"yes": "matches", "no": "differs", "cannot tell": "incomplete"}
ROLE_HELP = "Relation of the other checkpoints to the first: draft, adapter, merge, converted or finetuned."


@dataclass(frozen=True, kw_only=True)
class Diff(Checkpoints):
    """Compare the positional encodings that two checkpoints apply.

    Configurations are used only beyond the compared length, for windows and frequencies. Learned positions
    are compared by the measured vectors and biases; content is not compared. The exit code is 0 if no layer
    that was compared differs, and 1 otherwise. With a role, the command decides whether the checkpoints fit
    together for that purpose; the exit code is then 0 for yes, 1 for no, and 3 if it cannot be decided.

    Examples:
    $ spectrope diff original/ converted/ --role converted
    $ spectrope diff target/ draft/ --role draft
    """

    first: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="first", help="First checkpoint: a folder, or the id of a cached model."),
    ]
    second: Annotated[tyro.conf.Positional[str], tyro.conf.arg(name="second", help="Second checkpoint.")]
    more: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="PATH ...", help="Further inputs of a merge, and its result.")
    ] = ()
    role: Annotated[str | None, tyro.conf.arg(metavar="ROLE", help=ROLE_HELP)] = None
    length: LengthOption = None
    layers: LayersOption = None
    json: JsonOption = False

    def run(self) -> int:
        """Audit all, print what differs, and say by the exit code whether anything does."""
        if self.role is None:
            refuse_given(self, ("more",), "goes with --role merge.")
            return self._differences()
        sources = [self.first, self.second, *self.more]
        models = [self.open(self.first, self.layers), *map(self._other, sources[1:])]
        if self.role == "adapter" and (trained_on := self._trained_on()):
            sources.append(f"{trained_on}, on which it was trained")
            models.append(self.open(trained_on, self.layers))
        with counted("auditing") as watch:
            found = compatible(*models, role=self.role, names=sources, length=self.length, watch=watch)
        print_json(found.to_dict()) if self.json else show(found)
        return EXIT_CODES[ANSWERS[found.answer]]

    def _differences(self) -> int:
        models = [self.open(source, self.layers) for source in (self.first, self.second)]
        length = min(map(default_length, models)) if self.length is None else self.length
        with counted("auditing") as watch:
            difference = diff(
                *(audit(model, length=length, serving_modes=False, watch=watch) for model in models)
            )
        if self.json:
            print_json(difference.to_dict())
        else:
            show(difference)
        return 0 if difference.same else MISMATCH

    def _other(self, source: str) -> nn.Module:
        """A further checkpoint, or the first with an adapter."""
        if self.role != "adapter":
            return self.open(source, self.layers)
        if not is_adapter(source):
            raise ConfigError(
                f"{source} holds no adapter_config.json; --role adapter takes a base and an adapter."
            )
        return merged(self.open(self.first, self.layers), source)

    def _trained_on(self) -> str:
        """The base that the adapter names, where it is another one and on this machine."""
        named = base_of(self.second)
        return named if named and named != self.first and is_checkpoint(named) else ""
