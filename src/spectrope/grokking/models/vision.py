"""Image classifiers of transformers: ResNet-18 from its configuration, or from a local folder."""

from pathlib import Path
from typing import Any

from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor, nn

from spectrope.core import ConfigError, UnsupportedError, initial_weights

BASIC = {
    "layer_type": "basic",
    "embedding_size": 64,
    "depths": [2, 2, 2, 2],
    "hidden_sizes": [64, 128, 256, 512],
}


class ResNet18(nn.Module):
    """ResNet-18 as a map from images to logits.

    Args:
        n_classes: Labels.
        seed: Of weights that are drawn; those of the last layer always are.
        source: Folder of a ResNet-18 in safetensors to start from; None draws all weights.

    Raises:
        ConfigError: If the folder holds no ResNet-18 in safetensors.
        UnsupportedError: If transformers is missing.

    References:
        Deep Residual Learning for Image Recognition (He et al., 2016), Table 1.
    """

    def __init__(self, n_classes: int, seed: int, source: Path | None = None) -> None:
        super().__init__()
        transformers = _library()
        with initial_weights(seed):
            if source is None:
                config = transformers.ResNetConfig(num_labels=n_classes, **BASIC)
                self.network = transformers.ResNetForImageClassification(config)
            else:
                self.network = _loaded(transformers, source, n_classes)

    def forward(self, images: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n c"]:
        """Logits of images with values from 0 to 1."""
        return self.network(images).logits


def _loaded(transformers: Any, source: Path, n_classes: int) -> nn.Module:
    if not (source / "config.json").is_file():
        raise ConfigError(f"{source} is no folder of a checkpoint.")
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


def _library() -> Any:
    try:
        import transformers
    except ImportError:
        raise UnsupportedError("ResNet-18 needs transformers; pip install 'spectrope[hf]'.") from None
    return transformers
