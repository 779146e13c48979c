"""How time and memory grow with each size of the work, one picture for every subsystem.

`python -m benchmarks.growth [SUBSYSTEM ...]` does each work at four or five sizes, one thread, in processor
time. An exponent is the slope of a straight line through the logarithms, of all sizes and of the largest two,
which is nearer to what comes beyond them. Memory is what one run adds to the process at its peak. Pictures
are drawn into docs/images/growth. What the works compute is held to references by the
tests and by the other benchmarks.
"""

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import torch
from benchmarks.harness import peak_mib, place, store, timed
from transformers import LlamaConfig, LlamaForCausalLM

from spectrope.checkpoints.audit import audit
from spectrope.core import SpectropeWarning, unwatched
from spectrope.core.memory import keep_freed_memory
from spectrope.core.noise import Noise
from spectrope.encodings import Context
from spectrope.encodings.rope import RoPE
from spectrope.fast.planning import plan
from spectrope.fast.polynomial import planned_attention
from spectrope.figures.save import write_spec
from spectrope.figures.spec import THEME
from spectrope.lab.ablation.engine import ablated_logits
from spectrope.lab.ablation.interventions import single_heads
from spectrope.lab.engines.local import execute
from spectrope.lab.evaluation.score import predict
from spectrope.lab.training.loop import accumulate
from spectrope.lab.training.scales import experiment
from spectrope.models.decoder import Decoder, DecoderConfig
from spectrope.spectral import ToeplitzOperator, extremal_eigenvalues, nearest_toeplitz_of_product
from spectrope.tasks.base import Batch

PICTURES = Path(__file__).parents[1] / "docs" / "images" / "growth"
REPEATS = 3
LEAST_SECONDS = 0.02  # Of one timing; shorter works are repeated within it.
CPU = torch.device("cpu")
Call = Callable[[], object]
Work = Callable[[int], Call]  # From a size to what is timed.


@dataclass(frozen=True)
class Axis:
    """Works of one subsystem against one size.

    Args:
        subsystem: Its name.
        size: What grows, in words.
        sizes: Its values, in ascending order.
        works: What is timed at each of them, by name.
    """

    subsystem: str
    size: str
    sizes: tuple[int, ...]
    works: dict[str, Work]


@dataclass(frozen=True)
class Row:
    """One work at one size: the least processor seconds of a few runs, and the memory that one run adds."""

    subsystem: str
    axis: str
    work: str
    size: int
    seconds: float
    peak_mib: float | None


def decoder(examples: int, **sizes: int) -> tuple[Decoder, Batch]:
    """A decoder of the paper's depth, half its width, with RoPE, and random sequences of full length."""
    given: dict[str, Any] = {"d_model": 128, "d_ff": 256, "n_heads": 8, "max_length": 64, **sizes}
    model = Decoder(DecoderConfig(encoding=RoPE.Config(), **given))
    length = model.config.max_length
    ids = torch.randint(1, model.config.vocabulary, (examples, length))
    return model, Batch(ids, torch.zeros(examples, dtype=torch.long), torch.full((examples,), length))


def step(size: str, value: int) -> Call:
    """Gradients of 16 sequences with dropout, in float32."""
    model, data = decoder(16, **{size: value})

    def gradients() -> None:
        model.zero_grad(set_to_none=True)
        accumulate(model, data, Noise(model.config.dropout, 0, CPU), 16, torch.float32)

    return gradients


def evaluation(size: str, value: int) -> Call:
    """Class logits of 16 sequences, in float32."""
    model, data = decoder(16, **{size: value})
    return lambda: predict(model, data)


def sweep(size: str, value: int) -> Call:
    """Every head ablated in turn, on 4 sequences, in float32."""
    model, data = decoder(4, **{size: value})
    return lambda: list(ablated_logits(model, data, single_heads(model.config)))


def of_head(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys of one head of width 64, in float64."""
    q, k = torch.randn(2, n, 64, dtype=torch.float64)
    return q, k


def nearest(n: int) -> Call:
    """The Toeplitz matrix nearest to the logits."""
    q, k = of_head(n)
    return lambda: nearest_toeplitz_of_product(q, k)


def eigenvalues(n: int) -> Call:
    """Both extreme eigenvalues of a Kac-Murdock-Szegő matrix, certified."""
    lags = ToeplitzOperator.hermitian(0.9 ** torch.arange(n, dtype=torch.float64)).lags
    return lambda: extremal_eigenvalues(ToeplitzOperator(lags))


def polynomial(n: int) -> Call:
    """Attention of one head of width 16 by polynomials, to an error of 1e-2; its plan is made before."""
    q, k, v = torch.randn(3, 1, 1, n, 16)
    q = q * (0.5 * 4 / (q.norm(dim=-1).max() * k.norm(dim=-1).max()))
    pos, encoding = torch.arange(n)[None], RoPE(RoPE.Config(head_dim=16))
    ctx = Context(q, k, pos, pos)
    made = plan(ctx, encoding, 1e-2, causal=True).with_all_fast()
    return torch.no_grad()(lambda: planned_attention(ctx, v, encoding, made))


def audited(size: str, value: int) -> Call:
    """The audit of a Llama of width 256 with random weights, at 256 positions."""
    given = {"num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 1000, "length": 256, size: value}
    length = given.pop("length")
    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, **given}
    model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    return lambda: audit(model, length=length, watch=unwatched)


def listed(folder: Path, n: int) -> Call:
    """`spectrope runs` on so many finished runs."""
    import spectrope as sp

    made = experiment("distance", "nope", scale="mini", n_examples=64, epochs=1)
    small = replace(made.model, d_model=8, d_ff=8, n_layers=1, n_heads=1)
    root = folder / str(n)
    execute([replace(made, model=small, seed=seed) for seed in range(n)], root)
    return lambda: sp.runs(root)


def axes(folder: Path) -> Iterator[Axis]:
    """Every subsystem; runs are written into the folder."""
    lengths, heads = (32, 64, 128, 256, 512), (2, 4, 8, 16)
    for size, values in (
        ("max_length", lengths),
        ("n_heads", heads),
        ("vocabulary", (2**10, 2**12, 2**14, 2**16)),
    ):
        works = {"training step": partial(step, size), "evaluation": partial(evaluation, size)}
        yield Axis("decoder", NAMES[size], values, works)
    for size, values in (("max_length", lengths[:4]), ("n_heads", heads), ("n_layers", (2, 4, 8, 16))):
        yield Axis("sweep of heads", NAMES[size], values, {"every head": partial(sweep, size)})
    many = tuple(2**power for power in (12, 14, 16, 18))
    works: dict[str, Work] = {"nearest Toeplitz matrix": nearest, "extreme eigenvalues": eigenvalues}
    yield Axis("spectra", NAMES["max_length"], many, works)
    yield Axis("fast attention", NAMES["max_length"], many, {"causal attention": polynomial})
    for size, values in (
        ("length", lengths[1:]),
        ("num_attention_heads", heads),
        ("num_hidden_layers", (2, 4, 8, 16)),
    ):
        yield Axis("audit", NAMES[size], values, {"Llama": partial(audited, size)})
    yield Axis("runs", "runs", (32, 64, 128, 256), {"list of runs": partial(listed, folder)})


NAMES = {
    "max_length": "tokens",
    "length": "positions",
    "n_heads": "heads",
    "num_attention_heads": "heads",
    "vocabulary": "token ids",
    "n_layers": "layers",
    "num_hidden_layers": "layers",
}


def rows_of(axis: Axis) -> Iterator[Row]:
    """Every work at every size."""
    for name, work in axis.works.items():
        for size in axis.sizes:
            torch.manual_seed(0)
            call = work(size)
            call()
            peak = peak_mib(call)
            calls = max(1, round(LEAST_SECONDS / max(timed(call, time.process_time), 1e-6)))
            least = (
                min(timed(partial(_times, call, calls), time.process_time) for _ in range(REPEATS)) / calls
            )
            yield Row(axis.subsystem, axis.size, name, size, least, peak)


def _times(call: Call, n: int) -> None:
    for _ in range(n):
        call()


def exponents(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of time and memory, by work."""
    return [
        dict(zip(("subsystem", "axis", "work"), place, strict=True)) | _slopes(list(line))
        for place, line in groupby(rows, key=lambda row: (row.subsystem, row.axis, row.work))
    ]


QUANTITIES = {"seconds": "processor time, s", "peak_mib": "added memory, MiB"}
LEAST = {"seconds": 0.0, "peak_mib": 1.0}  # Less than a MiB is noise of the allocator.
SPANS = {"all": slice(None), "last": slice(-2, None)}


def _slopes(line: Sequence[Row]) -> dict[str, Any]:
    """Slopes over all sizes and over the largest two, of quantities that are large enough at every size."""
    found: dict[str, Any] = {}
    for quantity, least in LEAST.items():
        values = [getattr(row, quantity) or 0.0 for row in line]
        if min(values) > least:
            x, y = np.log([row.size for row in line]), np.log(values)
            found[quantity] = {
                name: round(float(np.polyfit(x[s], y[s], 1)[0]), 2) for name, s in SPANS.items()
            }
    return found


def draw(rows: Sequence[Row]) -> None:
    """One picture for every subsystem: time and memory against each size, on logarithmic axes."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for subsystem, group in groupby(rows, key=lambda row: row.subsystem):
        panels = [_panels(list(line)) for _, line in groupby(group, key=lambda row: row.axis)]
        spec = alt.vconcat(*panels).to_dict() | {"padding": 12, "config": {**THEME, "background": "white"}}
        write_spec(spec, PICTURES / f"{subsystem.replace(' ', '-')}.svg")


def _panels(rows: Sequence[Row]) -> alt.HConcatChart:
    """Time and memory against one size; the legends give the exponents over all sizes."""
    lines = [list(line) for _, line in groupby(rows, key=lambda row: row.work)]
    panels = []
    for quantity, title in QUANTITIES.items():
        points = [
            {"size": row.size, "value": getattr(row, quantity), "work": _label(line, quantity)}
            for line in lines
            for row in line
            if quantity in _slopes(line)
        ]
        x = alt.X(
            "size",
            type="quantitative",
            scale=alt.Scale(type="log", base=2),
            axis=alt.Axis(title=rows[0].axis, values=sorted({row.size for row in rows}), labelOverlap=False),
        )
        y = alt.Y("value", type="quantitative", scale=alt.Scale(type="log"), title=title)
        colour = alt.Color(
            "work", type="nominal", title=None, legend=alt.Legend(orient="top", columns=1, labelLimit=0)
        )
        chart = alt.Chart(alt.Data(values=points)).mark_line(point=True)
        panels += [chart.encode(x=x, y=y, color=colour).properties(width=260, height=180)] * bool(points)
    return alt.hconcat(*panels).resolve_scale(color="independent")


def _label(line: Sequence[Row], quantity: str) -> str:
    """The name of a work with its exponent."""
    slopes = _slopes(line).get(quantity)
    return line[0].work if slopes is None else f"{line[0].work}, exponent {slopes['all']:.2f}"


def main(chosen: Sequence[str]) -> None:
    """Time, store and draw; subsystems that are not chosen keep their rows."""
    warnings.simplefilter("ignore", SpectropeWarning)
    torch.set_num_threads(1)
    keep_freed_memory()
    kept = place() / "growth.json"
    before = [Row(**row) for row in json.loads(kept.read_text())["rows"]] if kept.exists() else []
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for axis in axes(Path(folder)):
            if chosen and axis.subsystem not in chosen:
                rows += [row for row in before if (row.subsystem, row.axis) == (axis.subsystem, axis.size)]
                continue
            new = list(rows_of(axis))
            print(*exponents(new), sep="\n", flush=True)
            rows += new
    store("growth", [asdict(row) for row in rows], {"exponents": exponents(rows)})
    draw(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
