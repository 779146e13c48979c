"""How often the cause of a difference is named from log-probabilities alone: `python -m campaigns.parity`.

Thirty faults are drawn with a seed from those of the catalogue that a Llama can have, each with random
parameters, in all layers or in one, in float32 or bfloat16. Another runtime then reports the logarithms of
the probabilities of its 20 most probable tokens, to five decimals, and `spectrope parity` names a cause.
Pairs without a fault follow: the same model, and the model in other precisions and with other kernels.

A fault that changes no prediction, such as tables in bfloat16 in a runtime in bfloat16, is drawn again.
The faults are put into the model's own code, not by the simulations that they are compared with. `--seed`
draws others. The held draw has the seed 2026 and was made once, after both were written; its stored rows are
kept, and `--unstored` judges all of them anew without writing anything.
"""

import argparse
import logging
from dataclasses import dataclass
from typing import Any

import pytest
import transformers
from campaigns.parity_faults import Draw, Drawn
from campaigns.parity_results import HELD, layers_right, store, stored
from tests.checkpoints.parity.induction import FOLDER, LENGTH, sequences
from torch import Tensor

from spectrope.checkpoints import open_model
from spectrope.checkpoints.parity import ModelRuntime, Parity, Runtime, parity
from spectrope.checkpoints.parity.cause import UNNOTICED
from spectrope.checkpoints.parity.observed import Observed, divergence
from spectrope.checkpoints.parity.places import places_of

DRAWN, PROMPTS, REPORTED, DECIMALS = 30, 16, 20, 5


@dataclass(frozen=True, eq=False)
class Server(Runtime):
    """A model that reports some log-probabilities, rounded, as a server does."""

    inner: Runtime

    @property
    def name(self) -> str:
        return "the other runtime"

    def predict(self, prompts: Tensor, places: Tensor) -> Observed:
        seen = self.inner.predict(prompts, places)
        logs, ids = seen.logs.topk(REPORTED, -1)
        return Observed(logs.mul(10**DECIMALS).round().div(10**DECIMALS), ids)


def compared(other: Any, cached: bool = False) -> Parity:
    """Parity of the model with another runtime of it."""
    prompts, _ = sequences(PROMPTS, LENGTH, seed=10**6)
    local = open_model(FOLDER, dtype="float32")
    served = Server(ModelRuntime(other, cached=cached))
    return parity(ModelRuntime(local), served, prompts, local)


def judged(drawn: Drawn, dtype: Any) -> dict[str, Any] | None:
    """What is named of one fault; None if it changes nothing that the runtime predicts."""
    prompts, _ = sequences(PROMPTS, LENGTH, seed=10**6)
    sound = ModelRuntime(open_model(FOLDER, dtype=dtype)).predict(prompts, places_of(LENGTH))
    with pytest.MonkeyPatch.context() as patch:
        other = open_model(FOLDER, dtype=dtype)
        drawn.inject(other, patch)
        seen = Server(ModelRuntime(other)).predict(prompts, places_of(LENGTH))
    if float(divergence(seen, sound).mean()) <= UNNOTICED:
        return None
    local = open_model(FOLDER, dtype="float32")
    found = parity(ModelRuntime(local), Replay(seen), prompts, local)
    cause = found.causes.cause
    return {
        "fault": drawn.words,
        "code": drawn.code,
        "layers": list(drawn.layers),
        "dtype": dtype,
        "named": [] if cause is None else list(cause.codes),
        "right": cause is not None and drawn.code in cause.codes,
        "verdict": found.verdict,
    }


@dataclass(frozen=True, eq=False)
class Replay(Runtime):
    """What a runtime has reported, after its fault was taken out of this process."""

    seen: Observed

    @property
    def name(self) -> str:
        return "the other runtime"

    def predict(self, prompts: Tensor, places: Tensor) -> Observed:
        return self.seen


SOUND = (
    ("the same", "float32", "sdpa", False, 0),
    ("eager attention", "float32", "eager", False, 0),
    ("a cache of keys", "float32", "sdpa", True, 0),
    ("bfloat16", "bfloat16", "sdpa", False, 0),
    ("bfloat16, eager attention", "bfloat16", "eager", False, 0),
    ("float16", "float16", "sdpa", False, 0),
    ("weights in 8 bits by row", "float32", "sdpa", False, 8),
    ("weights in 4 bits by row", "float32", "sdpa", False, 4),
    ("bfloat16, a cache of keys", "bfloat16", "sdpa", True, 0),
)


def without_fault(words: str, dtype: Any, kernel: str, cached: bool, bits: int) -> dict[str, Any]:
    """What is said of a pair in which no cause may be named."""
    other: Any = open_model(FOLDER, dtype=dtype)
    other.config._attn_implementation = kernel
    for weight in (w for w in other.parameters() if bits and w.ndim == 2):
        size = weight.detach().abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        weight.data = (weight.data / size).round() * size
    return _silent(words, other, cached)


def _silent(words: str, other: Any, cached: bool) -> dict[str, Any]:
    found = compared(other, cached)
    cause = found.causes.cause
    return {
        "pair": words,
        "answer": found.answer,
        "divergence": found.causes.none.divergence,
        "named": [] if cause is None else list(cause.codes),
        "verdict": found.verdict,
    }


def main() -> None:
    """Draw, compare, print and store; a call that was cut off goes on where it stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=HELD)
    parser.add_argument("--faults", type=int, default=DRAWN)
    parser.add_argument("--unstored", action="store_true", help="print the figures and keep no file")
    given = parser.parse_args()
    transformers.logging.set_verbosity(logging.CRITICAL)
    held = (given.seed, given.faults) == (HELD, DRAWN) and not given.unstored
    earlier, draw = stored(held), Draw(given.seed)
    done = list(earlier["rows"])
    rows: list[dict[str, Any]] = []
    while len(rows) < given.faults:
        drawn, dtype = draw.fault(), str(draw.rng.choice(["float32", "bfloat16"]))
        known = bool(done) and (done[0]["fault"], done[0]["dtype"]) == (drawn.words, dtype)
        row = done.pop(0) if known else judged(drawn, dtype)
        if row is None:
            say(f"drawn again, as it changes nothing: {drawn.code} {dtype}: {drawn.words}")
            continue
        rows.append(row)
        say(f"{'right' if row['right'] else 'WRONG'} {row['code']} {dtype}: {row['fault']} "
            f"{row['layers']}: {row['verdict']}")  # fmt: skip
        if held and len(rows) > len(earlier["rows"]):
            store(rows, earlier["without_fault"])
    silent = list(earlier["without_fault"])
    for pair in SOUND[len(silent) :]:
        silent.append(without_fault(*pair))
        say(f"{silent[-1]['pair']}: {silent[-1]['verdict']}")
        if held:
            store(rows, silent)
    say(f"{sum(row['right'] for row in rows)} of {len(rows)} faults named, {layers_right(rows)} of them with "
        f"their layers; a cause was named in "
        f"{sum(bool(row['named']) for row in silent)} of {len(silent)} pairs without a fault")  # fmt: skip


def say(line: str) -> None:
    """Print at once."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
