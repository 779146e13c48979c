"""Image classifiers of transformers: ResNet-18 from its configuration, or from a local folder."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor, nn

from spectrope.core import ConfigError, UnsupportedError, initial_weights

FULL_WIDTH = 64  # Channels of ResNet-18's first stage; each later stage has twice as many.
BASIC = {"layer_type": "basic", "depths": [2, 2, 2, 2]}


class ResNet18(nn.Module):
    """ResNet-18 as a map from images to logits.

    Args:
        n_classes: Labels.
        seed: Of weights that are drawn; those of the last layer always are.
        source: Folder of a ResNet-18 in safetensors to start from; None draws all weights.
        width: Channels of the first stage where weights are drawn; 64 is ResNet-18, 16 a quarter of it.

    Raises:
        ConfigError: If the folder holds no ResNet-18 in safetensors.
        UnsupportedError: If transformers is missing.

    References:
        Deep Residual Learning for Image Recognition (He et al., 2016), Table 1.
    """

    def __init__(
        self, n_classes: int, seed: int, source: Path | None = None, width: int = FULL_WIDTH
    ) -> None:
        super().__init__()
        transformers = _library()
        with initial_weights(seed):
            if source is None:
                widths = {"embedding_size": width, "hidden_sizes": [width * 2**stage for stage in range(4)]}
                config = transformers.ResNetConfig(num_labels=n_classes, **BASIC, **widths)
                self.network = transformers.ResNetForImageClassification(config)
            else:
                self.network = _loaded(source, n_classes)

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n c"]:
        """Logits of images with values from 0 to 1."""
        return self.network(images).logits

    def first_hidden(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n _"]:
        """Activations of the first layer, after its normalisation and ReLU and before pooling."""
        network: Any = self.network
        return network.resnet.embedder.embedder(images).flatten(1)


def require_library() -> None:
    """Refuse to start without transformers.

    Raises:
        UnsupportedError: If it is not installed.
    """
    if find_spec("transformers") is None:
        raise UnsupportedError("ResNet-18 needs transformers; pip install 'spectrope[hf]'.")


def _library() -> Any:
    require_library()
    import transformers

    return transformers


def _loaded(source: Path, n_classes: int) -> nn.Module:
    transformers = _library()
    if not (source / "config.json").is_file():
        raise ConfigError(f"{source} is not a folder of a checkpoint.")
    try:
        config = transformers.AutoConfig.from_pretrained(source, local_files_only=True)
    except (OSError, ValueError):
        raise ConfigError(f"{source} holds no configuration that can be read.") from None
    if config.model_type != "resnet":
        raise ConfigError(f"{source} holds a {config.model_type}, no ResNet.")
    architecture = (config.layer_type, list(config.depths), config.num_channels)
    if architecture != (BASIC["layer_type"], BASIC["depths"], 3):
        described = f"{architecture[0]} layers {architecture[1]} on {architecture[2]} channels"
        raise ConfigError(f"{source} holds no ResNet-18 on three channels; got {described}.")
    try:
        return transformers.ResNetForImageClassification.from_pretrained(
            source,
            num_labels=n_classes,
            ignore_mismatched_sizes=True,
            local_files_only=True,
            use_safetensors=True,
        )
    except (OSError, SafetensorError):
        raise ConfigError(f"{source} holds no weights in safetensors that can be read.") from None
