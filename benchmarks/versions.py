"""The same work under two versions of the package, in two processes that take turns on one core.

`python -m benchmarks.versions CHECKOUT [WORK ...]` compares the package of another checkout of this
repository, where `make setup` has been run, with this one. Each process imports its own package and does each
work once untimed. Then they work in turns, and the ratios of their processor times are paired, so that other
work on the machine slows both alike. What the works compute is held to references by the tests of each
version. Works use only names that both versions have.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve()
PAIRS = 9
Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """Median seconds of both versions, and how many times faster this one is: median and quartiles."""

    label: str
    before: float
    now: float
    low: float
    ratio: float
    high: float
    pairs: int


def sweep(scale: str, condition: str, n: int) -> Call:
    """Every head ablated in turn."""
    from spectrope.core.device import choose_device, choose_dtype
    from spectrope.lab.ablation.engine import ablated_logits
    from spectrope.lab.ablation.interventions import single_heads
    from spectrope.lab.training.scales import experiment
    from spectrope.models.decoder import Decoder

    made = experiment("distance", "rope", scale=scale, condition=condition)
    model, data = Decoder(made.model).eval(), made.task.build().sample(n, seed=0)
    variants, dtype = single_heads(made.model), choose_dtype("auto", choose_device("cpu"))
    return lambda: list(ablated_logits(model, data, variants, dtype=dtype))


def step(scale: str, n: int) -> Call:
    """Gradients of a batch of a training step."""
    import torch

    from spectrope.core.device import choose_device, choose_dtype
    from spectrope.core.noise import Noise
    from spectrope.lab.training.loop import accumulate
    from spectrope.lab.training.scales import experiment
    from spectrope.models.decoder import Decoder

    made = experiment("distance", "rope", scale=scale)
    model, data, cpu = Decoder(made.model), made.task.build().sample(n, seed=0), torch.device("cpu")
    dtype, micro = choose_dtype("auto", choose_device("cpu")), made.training.micro_batch

    def gradients() -> None:
        model.zero_grad(set_to_none=True)
        accumulate(model, data, Noise(made.model.dropout, 0, cpu), micro, dtype)

    return gradients


def evaluation(scale: str, n: int) -> Call:
    """Class logits of held-out examples."""
    from spectrope.core.device import choose_device, choose_dtype
    from spectrope.lab.evaluation.score import predict
    from spectrope.lab.training.scales import experiment
    from spectrope.models.decoder import Decoder

    made = experiment("distance", "rope", scale=scale)
    model, data = Decoder(made.model).eval(), made.task.build().sample(n, seed=0)
    dtype = choose_dtype("auto", choose_device("cpu"))
    return lambda: predict(model, data, dtype=dtype)


def grokking(fraction: float) -> Call:
    """Two steps of the paper's two-layer setting."""
    import tempfile

    import torch

    from spectrope.core.config import to_dict
    from spectrope.grokking.config import GrokExperiment, GrokTraining
    from spectrope.grokking.tasks.modular import ModularConfig
    from spectrope.grokking.trainer import GrokTrainer
    from spectrope.store import open_run

    training = GrokTraining(evaluate_every=100, stop=None)
    made = GrokExperiment(task=ModularConfig(p=97, fraction=fraction), training=training)
    trainer = GrokTrainer(made, open_run(Path(tempfile.mkdtemp()), to_dict(made), 1), torch.device("cpu"))
    return lambda: [trainer.step() for _ in range(2)]


def audit(architecture: str) -> Call:
    """The audit of a model of 12 layers and width 768 at 512 positions."""
    sys.path.insert(0, str(HERE.parents[1]))  # In a process that was started with this file alone.
    from benchmarks.audit import AUDITED, audited

    return audited(architecture, dict(AUDITED)[architecture], serving=True).fast


AUDITS = ("LlamaForCausalLM", "BertModel", "MptForCausalLM", "T5EncoderModel")
SCALES = {"mini": 512, "paper": 8}  # Examples of a sweep.
CONDITIONS = ("controlled", "described", "released")
WORKS: dict[str, Callable[[], Call]] = (
    {
        f"sweep of heads, {scale}, {condition}": partial(sweep, scale, condition, n)
        for scale, n in SCALES.items()
        for condition in CONDITIONS
    }
    | {
        "training step, mini": partial(step, "mini", 128),
        "gradients of 32 examples, paper": partial(step, "paper", 32),
        "evaluation of 2,000, mini": partial(evaluation, "mini", 2000),
        "evaluation of 256, paper": partial(evaluation, "paper", 256),
        "two grokking steps, fraction 0.3": partial(grokking, 0.3),
        "two grokking steps, fraction 0.5": partial(grokking, 0.5),
    }
    | {f"audit of {name}": partial(audit, name) for name in AUDITS}
)


def work() -> None:
    """Do the works named on standard input, one line each, and answer with processor seconds."""
    import torch

    from spectrope.core.memory import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    made: dict[str, Call] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in made:
            made.clear()
            made[name] = WORKS[name]()
            made[name]()
        begun = time.process_time()
        made[name]()
        print(time.process_time() - begun, flush=True)


class Version:
    """A process with the package of one checkout."""

    def __init__(self, checkout: Path) -> None:
        python = checkout / ".venv" / "bin" / "python"
        self._process = subprocess.Popen(
            [python, HERE, "--work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, name: str) -> float:
        """Processor seconds of one work."""
        to, back = self._pipes()
        print(name, file=to, flush=True)
        return float(back.readline())

    def close(self) -> None:
        """End the process."""
        self._pipes()[0].close()
        self._process.wait()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None
        assert back is not None
        return to, back


def measured(name: str, before: Version, now: Version) -> Row:
    """Both versions in turns; the first pair, which builds and warms up, is not counted."""
    pairs = [(before.seconds(name), now.seconds(name)) for _ in range(PAIRS + 1)][1:]
    low, middle, high = statistics.quantiles([old / new for old, new in pairs], n=4)
    old, new = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(name, old, new, low, middle, high, PAIRS)


def _line(row: Row) -> str:
    spread = f"({row.low:.2f} to {row.high:.2f})"
    return f"{row.label:>40} {row.before:8.3f} s {row.now:8.3f} s  {row.ratio:.2f}x {spread}"


def main(checkout: Path, names: list[str]) -> None:
    """Compare, print and store."""
    from benchmarks.harness import store

    sides = Version(checkout), Version(HERE.parents[1])
    rows = []
    for name in names or list(WORKS):
        rows.append(measured(name, *sides))
        print(_line(rows[-1]), flush=True)
    for side in sides:
        side.close()
    revision = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
    )
    store("versions", [asdict(row) for row in rows], {"before": revision.stdout.strip()})


if __name__ == "__main__":
    if sys.argv[1:] == ["--work"]:
        work()
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
