"""Options of the commands that open a checkpoint, and their progress."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from torch import nn

from spectrope.checkpoints.adapters import Tokenizer, open_model, open_tokenizer, parse_layers
from spectrope.checkpoints.adapters.load import Dtype
from spectrope.checkpoints.adapters.parts import part_of
from spectrope.console import RARE, DeviceOption
from spectrope.core import ConfigError, choose_device

LengthOption = Annotated[
    int | None, tyro.conf.arg(help="Number of positions (default: 512, or the model's limit).")
]
ContentsOption = Annotated[int, tyro.conf.arg(help="Number of random inputs compared, at least 2."), RARE]
LayersOption = Annotated[
    str | None,
    tyro.conf.arg(metavar="RANGE", help="Layers to load and measure, such as 0:4, -2: or 7 (default: all)."),
]

PartOption = Annotated[
    str | None,
    tyro.conf.arg(metavar="NAME", help="Model within it to look at by itself, such as model.encoder."),
    RARE,
]

# Of commands that also measure runs.
TaskOption = Annotated[str | None, tyro.conf.arg(help="For checkpoints: induction (default) or distance.")]
TextsOption = Annotated[
    Path | None, tyro.conf.arg(help="For checkpoints: file with one text per line."), RARE
]
TokensOption = Annotated[int, tyro.conf.arg(help="For checkpoints: tokens per sequence."), RARE]
SomeLayersOption = Annotated[
    str | None, tyro.conf.arg(metavar="RANGE", help="For checkpoints: layers to measure, such as 0:4.")
]
BatchOption = Annotated[int | None, tyro.conf.arg(help="For checkpoints: sequences per batch."), RARE]


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """What may be done to open a checkpoint; nothing beyond reading local safetensors unless asked."""

    dtype: Annotated[Dtype, tyro.conf.arg(help="Floating-point type; auto: the checkpoint's."), RARE] = "auto"
    device: DeviceOption = "auto"
    allow_download: Annotated[
        bool, tyro.conf.arg(help="Allow downloading the model from the Hugging Face Hub."), RARE
    ] = False
    trust_remote_code: Annotated[
        bool, tyro.conf.arg(help="Allow executing code that comes with the model."), RARE
    ] = False
    allow_pickle: Annotated[
        bool, tyro.conf.arg(help="Allow reading pickled weights, which can execute code."), RARE
    ] = False

    def open(
        self, source: str, layers: str | None = None, *, part: str | None = None, by_layer: bool = False
    ) -> nn.Module:
        """The model of a checkpoint, some of its layers, or a part; `by_layer` is for what only reads it."""
        device = choose_device(self.device)
        model = open_model(
            source,
            allow_download=self.allow_download,
            trust_remote_code=self.trust_remote_code,
            allow_pickle=self.allow_pickle,
            dtype=self.dtype,
            layers=None if layers is None else parse_layers(layers),
            by_layer=by_layer and device.type == "cpu",
        )
        return (model if part is None else part_of(model, part)).to(device)

    def tokenizer(self, source: str) -> Tokenizer | None:
        """The tokenizer of a checkpoint, if it has one."""
        try:
            return open_tokenizer(
                source, allow_download=self.allow_download, trust_remote_code=self.trust_remote_code
            )
        except ConfigError:
            return None

    def tokenizer_for(self, source: str, texts: Path | None) -> Tokenizer | None:
        """The tokenizer of a checkpoint, if it has one; texts need it.

        Raises:
            ConfigError: If there are texts and no tokenizer.
        """
        tokenizer = self.tokenizer(source)
        if texts is not None and tokenizer is None:
            raise ConfigError("--texts needs the checkpoint's tokenizer, and it has none that can be read.")
        return tokenizer

    @staticmethod
    def chosen(layers: str | None) -> slice | None:
        """The layers that an option names; None takes all."""
        return None if layers is None else parse_layers(layers)
