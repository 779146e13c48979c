"""Toeplitz structure at length: the toolkit against dense solvers, and its growth to a million positions.

One thread, head width 64, float64 throughout. References work on dense logits or matrices; values must agree
to 1e-8 of the largest one before anything is timed. Run as `python -m benchmarks.spectral`.
"""

from collections.abc import Callable, Iterator

import numpy as np
import scipy.linalg
import torch
from benchmarks.harness import Case, Row, Side, run
from torch import Tensor

from spectrope.spectral import (
    Extremes,
    ToeplitzOperator,
    extremal_eigenvalues,
    lag_effects,
    lag_effects_of_product,
    nearest_toeplitz_of_product,
)

WIDTH = 64
MILLION = 1_000_000
LENGTHS = (10_000, 100_000, MILLION)


def head(n: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of one head."""
    rng = torch.Generator().manual_seed(n)
    q, k = torch.randn(2, n, WIDTH, generator=rng, dtype=torch.float64)
    return q, k


def close(found: np.ndarray, expected: np.ndarray) -> None:
    """The gate: equal to 1e-8 of the largest value."""
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error <= 1e-8, f"off by {error:.1e} of the largest value"


def dense_means(q: Tensor, k: Tensor) -> np.ndarray:
    """Mean of each diagonal of the dense logits, from lag -(n-1) to n-1."""
    logits, n = q.numpy() @ k.numpy().T, len(q)
    return np.array([np.trace(logits, -d) / (n - abs(d)) for d in range(1 - n, n)])


def trained_table(n: int, steps: int = 200) -> Tensor:
    """A learned bias per lag |i - j|, trained to denoise an autoregressive series by attention to lags alone.

    Softmax ignores a constant, so the table is shifted to end at 0, which keeps its last lags bounded.
    """
    rng = torch.Generator().manual_seed(0)
    table = (0.02 * torch.randn(n, generator=rng, dtype=torch.float64)).requires_grad_()
    optimiser = torch.optim.Adam([table], lr=0.02)
    for _ in range(steps):
        signal = torch.randn(4, n, generator=rng, dtype=torch.float64)
        signal = _filtered(signal, 0.9 ** torch.arange(n, dtype=torch.float64), causal=True)
        noisy = signal + torch.randn(4, n, generator=rng, dtype=torch.float64)
        weights = table.exp()
        smoothed = _filtered(noisy, weights) / _filtered(torch.ones(1, n, dtype=torch.float64), weights)
        loss = ((smoothed - signal) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    learned = table.detach()
    return learned - learned[-n // 8 :].mean()


def _filtered(x: Tensor, lags: Tensor, causal: bool = False) -> Tensor:
    n = x.shape[-1]
    past = torch.zeros_like(lags[1:]) if causal else lags[1:].flip(0)
    column = torch.cat([lags, lags.new_zeros(1), past])
    return torch.fft.irfft(torch.fft.rfft(x, 2 * n) * torch.fft.rfft(column), 2 * n)[..., :n]


def biases(n: int, table: Tensor) -> dict[str, ToeplitzOperator]:
    """The families of the benchmark; a table shorter than n is continued by 0, as clipped tables are."""
    d = torch.arange(n, dtype=torch.float64)
    learned = torch.nn.functional.pad(table, (0, n - len(table)))
    columns = {
        "KMS .9": 0.9**d,
        "Fejér": 1 - d / n,
        "table": learned,
    }
    return {name: ToeplitzOperator.hermitian(column) for name, column in columns.items()}


def ends(found: Extremes) -> np.ndarray:
    """Both extreme eigenvalues."""
    return np.array([found.smallest.value_estimate, found.largest.value_estimate])


def fresh(operator: ToeplitzOperator) -> ToeplitzOperator:
    """The same operator without what it has cached."""
    return ToeplitzOperator(operator.lags)


def against_dense() -> Iterator[Case]:
    q, k = head(10_000)
    yield Case(
        "nearest Toeplitz of QK', n = 10,000",
        gate=lambda: close(nearest_toeplitz_of_product(q, k).lags.numpy(), dense_means(q, k)),
        fast=lambda: nearest_toeplitz_of_product(q, k),
        reference=lambda: dense_means(q, k),
        goal=">= 100x",
    )
    yield Case(
        "causal lag effects and their share, n = 10,000",
        gate=lambda: close(
            lag_effects_of_product(q, k, causal=True).lags.numpy(),
            lag_effects(q @ k.T, causal=True).lags.numpy(),
        ),
        fast=lambda: lag_effects_of_product(q, k, causal=True),
        reference=lambda: lag_effects(q @ k.T, causal=True),
        goal=">= 30x",
    )
    for name, operator in biases(4096, trained_table(4096)).items():
        yield extremes_against_dense(name, operator)


def extremes_against_dense(name: str, operator: ToeplitzOperator) -> Case:
    """Both extreme eigenvalues against all eigenvalues of the dense matrix."""

    def dense() -> np.ndarray:
        return np.asarray(scipy.linalg.eigvalsh(operator.dense().numpy()))

    def gate() -> None:
        found = extremal_eigenvalues(operator)
        values = dense()
        close(ends(found), values[[0, -1]])
        own = np.abs(ends(found) / values[[0, -1]] - 1)
        widths = [end.upper_bound - end.lower_bound for end in (found.smallest, found.largest)]
        print(
            f"  {name}: relative to each value itself {own[0]:.1e}, {own[1]:.1e}; certificates "
            f"{widths[0]:.1e}, {widths[1]:.1e} wide, of {values[-1]:.3g}"
        )

    return Case(
        f"extreme eigenvalues, {name}, n = 4,096",
        gate=gate,
        fast=lambda: extremal_eigenvalues(fresh(operator)),
        reference=dense,
        goal=">= 300x",
        repeats=2,
    )


def growing() -> Iterator[Case]:
    """From 10,000 to a million positions, without a reference."""
    table = trained_table(4096)
    for n in LENGTHS:
        q, k = head(n)
        works: dict[str, Callable[[], object]] = {
            "nearest Toeplitz of QK'": lambda: nearest_toeplitz_of_product(q, k),  # noqa: B023
            "causal lag effects and their share": lambda: lag_effects_of_product(q, k, causal=True),  # noqa: B023
        }
        for name, work in works.items():
            yield Case(f"{name}, n = {n:,}", gate=lambda: None, fast=work, repeats=repeats_at(n))
        del q, k, works
        for name, operator in biases(n, table).items():
            goal = "< 10 s" if n == MILLION else ""
            yield extremes_at_length(name, operator, goal)


def extremes_at_length(name: str, operator: ToeplitzOperator, goal: str) -> Case:
    """Both ends of one family; the gate asks that the certificates hold them."""

    def gate() -> None:
        found = extremal_eigenvalues(operator)
        for end in (found.smallest, found.largest):
            assert end.lower_bound <= end.value_estimate <= end.upper_bound, f"{end}"

    return Case(
        f"extreme eigenvalues, {name}, n = {operator.n:,}",
        gate=gate,
        fast=lambda: extremal_eigenvalues(fresh(operator)),
        goal=goal,
        repeats=repeats_at(operator.n),
    )


def repeats_at(n: int) -> int:
    """Timed runs: one at a million positions, which takes seconds."""
    return 1 if n == MILLION else 3


def exponents(rows: list[Row]) -> dict[str, dict[str, dict[str, float]]]:
    """Powers of n by which time and memory grow, fitted to all lengths; the goal for time is 1.35."""
    families: dict[str, list[Side]] = {}
    for row in rows:
        families.setdefault(row.label.rsplit(", n = ", 1)[0], []).append(row.fast)
    found = {name: powers(sides) for name, sides in families.items() if len(sides) == len(LENGTHS)}
    for name, power in found.items():
        print(f"{name:>40} grows as", ", ".join(f"{what} n^{value:.2f}" for what, value in power.items()))
    return {"exponents": found}


def powers(sides: list[Side]) -> dict[str, float]:
    """Of time, and of memory where it was measured, for one family at `LENGTHS`."""
    memory = [side.peak_mib for side in sides if side.peak_mib]
    found = {"seconds": slope([side.seconds for side in sides])}
    return found | ({"peak_mib": slope(memory)} if len(memory) == len(sides) else {})


def slope(values: list[float]) -> float:
    """Exponent of n, by least squares on logarithms."""
    return float(np.polyfit(np.log(LENGTHS), np.log(values), 1)[0])


if __name__ == "__main__":
    run("spectral", against_dense(), repeats=3)
    run("spectral_growth", growing(), repeats=3, summary=exponents)
