"""`spectrope grok-theory`: numerical tests of the theory of token uniformity."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import polars as pl
import torch
import tyro

from spectrope.console import JsonOption, console, frame, print_json
from spectrope.core import require
from spectrope.grokking.arrangement import least_norm, regular_polygon, stationarity
from spectrope.grokking.coverage import coverage_of
from spectrope.grokking.least_norm import NormDescent
from spectrope.grokking.measures.evenness import unevenness
from spectrope.grokking.models.mlp import ModularMLP
from spectrope.grokking.tasks.distributions import Distribution, Random, Square, Strip
from spectrope.grokking.tasks.modular import ModularConfig, is_prime

LISTED = False

HOLES = (0.41, 0.52, 0.62, 0.69)  # Of the operands; the paper's 40, 50, 60 and 67 of 97.
OVERLAP = 0.62  # The offset of the paper's second vocabulary, 60 of 97.
LEAST_P, MOST_P = 5, 101  # Primes whose holes leave something to train on, and that take minutes at most.
MOST_TOKENS = 12  # More take minutes.


@dataclass(frozen=True, kw_only=True)
class GrokTheory:
    """Test the theory of token uniformity numerically.

    Examples:
    $ spectrope grok-theory
    $ spectrope grok-theory --p 31 --tokens 5
    """

    p: Annotated[int, tyro.conf.arg(help="Modulus, a prime.")] = 23
    fraction: Annotated[float, tyro.conf.arg(help="Fraction of all pairs used for training.")] = 0.7
    tokens: Annotated[
        int, tyro.conf.arg(help="Number of embedded tokens, at pairwise distances of at least 1.")
    ] = 7
    decay: Annotated[
        float, tyro.conf.arg(help="Initial weight of the norm penalty, which is lowered in stages.")
    ] = 1e-2
    seed: Annotated[int, tyro.conf.arg(help="Seed of the split, the initial weights and the descents.")] = 0
    json: JsonOption = False

    def run(self) -> None:
        """Print a table for each question."""
        require(3 <= self.tokens <= MOST_TOKENS, self, "tokens", f"between 3 and {MOST_TOKENS}")
        in_range = LEAST_P <= self.p <= MOST_P and is_prime(self.p)
        require(in_range, self, "p", f"a prime between {LEAST_P} and {MOST_P}")
        task = ModularConfig(p=self.p, fraction=self.fraction)
        split, cycle = task.build().split(self.seed), task.build().cycle()
        with console.status("Lowering the norm near the zero-loss set"):
            model = ModularMLP.Config(d_model=32, hidden=128).build(task, self.seed)
            path = NormDescent(decay=self.decay)(model, split, cycle)
        shown = path.rename(lambda name: name.replace("_", " "))
        frame(
            "Norm of a perceptron by stage: descent on margins below 1 and a decreasing norm penalty (no "
            "certified minimum)",
            shown,
        )
        arrangements = self._arrangements()
        frame(
            "Smallest norm of tokens that are at least 1 apart; an unevenness of 0 means uniform",
            arrangements,
        )
        with console.status("Solving the training pairs"):
            table = self._coverages()
        frame(
            "Share of the other pairs that the training pairs imply, if operands and results are phases",
            table,
        )
        if self.json:
            tables = {"norms": path, "arrangements": arrangements, "coverage": table}
            print_json({name: one.to_dicts() for name, one in tables.items()})

    def _arrangements(self) -> pl.DataFrame:
        widths = dict.fromkeys((2, 3, self.tokens - 1))
        arrangements = {
            f"least norm, width {width}": least_norm(self.tokens, width, self.seed) for width in widths
        }
        polygon = regular_polygon(self.tokens)
        arrangements["regular polygon, width 2"] = polygon
        padding = ((0, 0), (0, self.tokens - 3))
        arrangements[f"regular polygon, width {self.tokens - 1}"] = np.pad(polygon, padding)
        rows = []
        for name, x in arrangements.items():
            conditions = stationarity(x)
            rows.append(
                {
                    "tokens": name,
                    "squared norm": float(np.square(x).sum()),
                    "unevenness": unevenness(torch.from_numpy(x)),
                    "least curvature": conditions.least_curvature,
                    "strict minimum": "yes" if conditions.is_strict_minimum else "no",
                }
            )
        return pl.DataFrame(rows)

    def _coverages(self) -> pl.DataFrame:
        sides = dict.fromkeys(round(share * self.p) for share in HOLES)
        held: list[Distribution] = [kind(k=k) for kind in (Square, Strip) for k in sides]
        return pl.DataFrame([self._covered(distribution) for distribution in (Random(), *held)])

    def _covered(self, distribution: Distribution) -> dict[str, object]:
        task = ModularConfig(p=self.p, fraction=self.fraction, distribution=distribution)
        split = task.build().split(self.seed)
        offsets = (0, round(OVERLAP * self.p), self.p)
        one, overlapping, two = (coverage_of(split, self.p, offset) for offset in offsets)
        return {
            "distribution": f"{distribution.kind} {getattr(distribution, 'k', '')}".strip(),
            "trained": int(split.trains.sum()),
            "class trained": one.trained,
            "attainable, one vocabulary": one.attainable,
            "overlapping": overlapping.attainable,
            "two": two.attainable,
        }
