"""Small encoders of sounds, a form each."""

from collections.abc import Callable

import torch
import transformers
from torch import nn
from transformers.models.moonshine.modeling_moonshine import MoonshineEncoder
from transformers.models.whisper.modeling_whisper import WhisperEncoder

LENGTH = 72
SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
BANDS = {"num_mel_bins": 16}
DECODER = {"decoder_layers": 1, "decoder_attention_heads": 4, "vocab_size": 64, "pad_token_id": 0}
STATED = {"encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 64, "d_model": 64}
WHISPER = {**BANDS, **STATED, "max_source_positions": LENGTH}
CODEC = {"encoder_hidden_size": 4, "downsampling_ratios": [4, 8, 8], "codebook_dim": 4, "hidden_size": 16}
SOUNDS: dict[str, Callable[[], nn.Module]] = {
    "audioflamingo3": lambda: _built("AudioFlamingo3", **SIZES, **BANDS, max_source_positions=LENGTH),
    "glmasr": lambda: _built("GlmAsr", **SIZES, **BANDS),
    "lasr": lambda: _built("Lasr", **SIZES, **BANDS, subsampling_conv_channels=8, conv_kernel_size=9),
    "moonshine": lambda: MoonshineEncoder(
        transformers.MoonshineConfig(
            hidden_size=64,
            intermediate_size=64,
            vocab_size=64,
            encoder_num_hidden_layers=2,
            encoder_num_attention_heads=4,
            decoder_num_hidden_layers=1,
            decoder_num_attention_heads=2,
        )
    ),
    "parakeet": lambda: _with_biases(_built("Parakeet", **SIZES, **BANDS, subsampling_conv_channels=8)),
    "pe_audio": lambda: _built("PeAudio", **SIZES, head_dim=16, dac_config=CODEC),
    "qwen2_audio": lambda: _built("Qwen2Audio", **WHISPER),
    "voxtral": lambda: _built("Voxtral", **SIZES, **BANDS, max_source_positions=LENGTH),
    "voxtral_realtime": lambda: _built("VoxtralRealtime", **SIZES, **BANDS, head_dim=16, sliding_window=30),
    "whisper": lambda: WhisperEncoder(whisper_config()),
}


def whisper_config() -> transformers.WhisperConfig:
    return transformers.WhisperConfig(**WHISPER, **DECODER, decoder_start_token_id=1)


def _built(family: str, **fields: object) -> nn.Module:
    config = getattr(transformers, f"{family}EncoderConfig")(**fields)
    return getattr(transformers, f"{family}Encoder")(config)


def _with_biases(model: nn.Module) -> nn.Module:
    """Transformer-XL's biases, which begin at 0, drawn as training leaves them."""
    for name, weights in model.named_parameters():
        if name.endswith(("bias_u", "bias_v")):
            nn.init.normal_(weights, std=0.5)
    return model


def encoder(name: str) -> nn.Module:
    """An encoder with random weights, in evaluation mode."""
    torch.manual_seed(0)
    return SOUNDS[name]().eval()
