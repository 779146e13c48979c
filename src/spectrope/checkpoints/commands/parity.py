"""`spectrope parity`: where two runtimes of one model differ, and which fault would make them differ so."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Tokenizer, encoded, trained_length
from spectrope.checkpoints.language import read_texts
from spectrope.checkpoints.options import Checkpoints
from spectrope.checkpoints.parity import Endpoint, ModelRuntime, Runtime, parity, prompts_of
from spectrope.checkpoints.parity.places import PLACES
from spectrope.checkpoints.parity.sources import checkpoint_and_settings, is_address
from spectrope.console import RARE, JsonOption, counted, print_json, refuse_given, show
from spectrope.core import ConfigError

LONGEST = 512  # Tokens of a prompt, unless asked for more.
EXIT_CODES = {"same": 0, "precision": 0, "differs": 1, "cannot tell": 3}
LOCAL_HELP = "Checkpoint to simulate faults on (default: one of the two)."


@dataclass(frozen=True, kw_only=True)
class Parity(Checkpoints):
    """Compare two runtimes of one model, and find why they differ.

    A runtime is a checkpoint, with settings of transformers behind it such as
    "?dtype=bfloat16&attention=eager", or the address of a server that completes prompts of token ids and
    reports log-probabilities. The cause is that of the runtime which is further from the local copy. Ends
    with 0 if predictions differ by no more than precision, with 1 if by more, and with 3 if the tokens that
    both report are too few to tell. A key for the server is read from SPECTROPE_API_KEY.

    Examples:
    $ spectrope parity path/to/checkpoint http://127.0.0.1:8080/v1
    $ spectrope parity path/to/checkpoint "path/to/converted?dtype=bfloat16"
    """

    first: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(name="first", help="A runtime: a checkpoint, or the address of a server."),
    ]
    second: Annotated[tyro.conf.Positional[str], tyro.conf.arg(name="second", help="The other runtime.")]
    local: Annotated[str | None, tyro.conf.arg(help=LOCAL_HELP)] = None
    length: Annotated[
        int | None, tyro.conf.arg(help=f"Tokens per prompt (default: {LONGEST}, or the model's limit).")
    ] = None
    prompts: Annotated[int, tyro.conf.arg(help="Number of prompts, at least 2.")] = 16
    texts: Annotated[
        Path | None, tyro.conf.arg(help="File with one text per line (default: random tokens).")
    ] = None
    places: Annotated[
        int,
        tyro.conf.arg(help="Maximum number of positions per prompt at which predictions are compared."),
        RARE,
    ] = PLACES
    model: Annotated[str, tyro.conf.arg(help="Name of the model on the server."), RARE] = ""
    seed: Annotated[int, tyro.conf.arg(help="Seed of the random tokens."), RARE] = 0
    json: JsonOption = False

    def run(self) -> int:
        """Ask both, print how they differ and why, and say by the exit code whether they do."""
        for name, value, least in (("prompts", self.prompts, 2), ("places", self.places, 2)):
            if value < least:
                raise ConfigError(f"--{name} must be at least {least}; got {value}.")
        if not any(map(is_address, (self.first, self.second))):
            refuse_given(self, ("model",), "names the model of a server; neither runtime is one.")
        if self.texts is not None:
            refuse_given(self, ("seed",), "is of random tokens; --texts takes the place of these.")
        source = self._local_source()
        local = replace(self, dtype="float32").open(source)
        tokenizer = self.tokenizer(source)
        prompts = self._prompts(local, tokenizer)
        runtimes = [self._runtime(one, tokenizer) for one in (self.first, self.second)]
        with counted("simulating") as watch:
            found = parity(runtimes[0], runtimes[1], prompts, local, places=self.places, watch=watch)
        print_json(found.to_dict()) if self.json else show(found)
        return EXIT_CODES[found.answer]

    def _local_source(self) -> str:
        """The checkpoint on which faults are simulated."""
        if self.local is not None and (is_address(self.local) or "?" in self.local):
            raise ConfigError(f"--local must be a checkpoint, without settings; got {self.local!r}.")
        for named in (self.local, self.first, self.second):
            if named is not None and not is_address(named):
                return checkpoint_and_settings(named)[0]
        raise ConfigError(
            "parity of two servers needs a checkpoint of their model, for its tokens and for the cause; "
            "give --local."
        )

    def _runtime(self, source: str, tokenizer: Tokenizer | None) -> Runtime:
        if is_address(source):
            vocabulary = {} if tokenizer is None else tokenizer.ids_by_text()
            return Endpoint(source, self.model, vocabulary=vocabulary)
        name, settings = checkpoint_and_settings(source)
        dtype = self.dtype if settings.dtype == "auto" else settings.dtype
        model = replace(self, dtype=dtype).open(name)
        if settings.attention != "auto":
            try:
                model.set_attn_implementation(settings.attention)  # pyright: ignore[reportCallIssue]
            except ValueError as error:
                raise ConfigError(f"{source}: {str(error).splitlines()[0]}") from None
        return ModelRuntime(model, source, cached=settings.cache == "yes")

    def _prompts(self, local: nn.Module, tokenizer: Tokenizer | None) -> Tensor:
        length = self.length or min(LONGEST, trained_length(local) or LONGEST)
        if length < 16:
            raise ConfigError(f"--length must be at least 16; got {length}.")
        if self.texts is None:
            return prompts_of(local, self.prompts, length, self.seed)
        if tokenizer is None:
            raise ConfigError("--texts needs the checkpoint's tokenizer, and it has none that can be read.")
        texts = encoded(local, tokenizer, read_texts(self.texts), length)
        rows = [row for row in texts if len(row) == length]
        if len(rows) < 2:
            raise ConfigError(
                f"{self.texts} has {len(rows)} texts of at least {length} tokens; give at least "
                "2 texts, or a smaller --length."
            )
        return torch.tensor(rows[: self.prompts])
