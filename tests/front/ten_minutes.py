# pyright: strict
"""What someone writes who knows torch and scikit-learn, with `dir(sp)` and `help` alone."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import spectrope as sp


# An encoding of one's own beside two others.
class Hyperbolic(sp.encodings.LagBias, name="ten_minutes"):
    """Lowers logits by the logarithm of the lag."""

    @dataclass(frozen=True, kw_only=True)
    class Config(sp.encodings.EncodingConfig):
        n_heads: int = 8

    def lag_bias(self, lag: Tensor) -> Tensor:
        return -torch.log1p(lag.abs())[..., None].expand(*lag.shape, self.config.n_heads)


print(sp.check_laws(Hyperbolic))
comparison = sp.compare([Hyperbolic, "rope", "alibi"], "distance", seeds=[0], epochs=1, n_examples=60)
print(comparison)
frame: pl.DataFrame = comparison.to_frame()
print(frame.select("encoding", "test", "drop"))

# A head of a Hugging Face model.
llama = LlamaForCausalLM(
    LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=50,
        max_position_embeddings=64,
    )
)
ids = torch.randint(5, 50, (2, 12))
intact: Tensor = llama(input_ids=ids).logits
with sp.ablated(llama, [(0, 3)]):
    changed: Tensor = llama(input_ids=ids).logits
print(float((intact - changed).abs().max()) > 0)
costs = sp.ablate(llama, examples=4, length=16)
print(costs.to_frame().head(2))


# A head of a module of one's own.
class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.tokens, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
        self.blocks = nn.TransformerEncoder(layer, 2)

    def forward(self, ids: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.blocks(self.tokens(ids), mask=mask, is_causal=True))


model = Model().eval()
own = sp.OwnModel(model, max_length=32, encoding="nope")
with torch.no_grad(), sp.ablated(own, [(1, 0)]):
    print(model(ids).shape)
audit = sp.audit(own)
print(audit)
print(audit.to_frame()["verdict"].to_list(), sp.audit(llama).ok)

# A heat map, one frame of all runs, a report.
drawing = sp.figure(comparison, "heatmap")
print(drawing, costs.figure().save("heads.svg"))
everything: pl.DataFrame = sp.table()
runs: list[sp.Run] = sp.runs()
path: Path = sp.report(comparison)
print(everything.height, len(runs), runs[0], path)

# Plain tensors, one run, its heads and its spectrum.
rope = sp.encodings.RoPE(head_dim=64)
q, k = torch.randn(2, 1, 8, 16, 64)
print(rope(q, k).shape, rope.rotate(q, torch.arange(16), "query").shape)
experiment = sp.experiment("distance", "rope", epochs=1, n_examples=60).with_(learning_rate=1e-3)
run = sp.train(experiment)
print(sp.ablate(run, examples=10), sp.spectrum(run, examples=8, draws=9).to_frame().height)
decoder = sp.load_model(run)
with sp.ablated(decoder, (0, 1)):
    pass
