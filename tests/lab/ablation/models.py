"""Small decoders and data for the tests of ablation, and heads ablated by plain arithmetic."""

from itertools import combinations

import torch

from spectrope.attention.latent import Latent
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.ablation.interventions import HeadAblation, Variant, single_heads
from spectrope.models.decoder import Decoder, DecoderConfig
from spectrope.tasks.base import Batch

SIZES = {"vocabulary": 17, "n_labels": 7, "max_length": 12, "d_model": 16, "n_layers": 3, "n_heads": 4}


LATENT = Latent.Config(latent=18, query_latent=13, rotary_dim=4)  # three heads' worth of columns for four


def decoder(encoding="rope", *, seed=0, dtype=torch.float64, **fields):
    """A decoder whose heads all matter: random weights, larger than at initialisation."""
    config = DecoderConfig(
        **SIZES, head_dim=6, d_ff=24, dropout=0.0, encoding=ENCODINGS.config(encoding)(), **fields
    )
    torch.manual_seed(seed)
    model = Decoder(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, dtype=dtype))
    return model


def examples(n=20, *, seed=0, width=12):
    """Random sequences of random lengths, padded with zeros."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, width + 1, (n,), generator=draw)
    inputs = torch.randint(1, 17, (n, width), generator=draw)
    inputs[torch.arange(width) >= lengths[:, None]] = 0
    return Batch(inputs, torch.randint(0, 7, (n,), generator=draw), lengths)


def head_pairs(config: DecoderConfig, fill: str = "zero") -> list[Variant]:
    """Every pair of heads, of the same layer or of two."""
    return [one + other for one, other in combinations(single_heads(config, fill), 2)]


def whole_layers(config: DecoderConfig, fill: str = "zero") -> list[Variant]:
    """All heads of each layer."""
    heads = range(config.n_heads)
    return [tuple(HeadAblation(layer, h, fill) for h in heads) for layer in range(config.n_layers)]
