r"""Is token uniformity a local minimum of weight decay? An exact answer for a known zero-loss set.

Weight decay alone has one minimum, at zero embeddings, and its flow :math:`\dot E = -\lambda E` does not
rotate embeddings. The statement is only meaningful on the set where the loss vanishes, which keeps tokens
apart. This module takes that literally: minimise :math:`\tfrac12\sum_r\|E_r\|^2` where all
:math:`\|E_r-E_s\|\ge 1`.

Since :math:`\sum_r\|E_r\|^2\ge\tfrac1p\sum_{r<s}\|E_r-E_s\|^2\ge\tfrac{p-1}2` with equality for the centred
regular simplex alone, that simplex is the global minimum in p - 1 dimensions or more. There, uniformity is
necessary for the global minimum, but it is not sufficient, because a regular polygon is also uniform, but a
saddle point. In fewer dimensions uniformity is neither necessary nor sufficient: see `least_norm` and
`stationarity`.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize

from spectrope.core import ConfigError, numpy_stream

TOUCHING = 1e-6  # How close to 1 a distance is that holds two tokens apart.
Points = Float[np.ndarray, "p c"]


@dataclass(frozen=True)
class Stationarity:
    """Whether embeddings are a local minimum of their norm among those that are at least 1 apart.

    Args:
        residual: Norm of the gradient that no pushing pair balances, over that of the embeddings; 0 at a
            stationary point.
        least_push: Smallest multiplier of a touching pair, in the set of least norm where several balance the
            gradient; NaN where none touches.
        least_curvature: Smallest second derivative of the Lagrangian along motions that keep touching pairs
            at their distance, rotations left out; NaN where there is no such motion.
    """

    residual: float
    least_push: float
    least_curvature: float

    @property
    def is_strict_minimum(self) -> bool:
        """Whether these conditions suffice for a strict local minimum, rotations apart.

        Where a push or a curvature is 0 they do not decide, and the answer is no.
        """
        pushed, curved = not self.least_push <= TOUCHING, not self.least_curvature <= TOUCHING
        return self.residual < TOUCHING and pushed and curved


def stationarity(embeddings: Points) -> Stationarity:
    r"""First- and second-order conditions of a local minimum.

    With multipliers :math:`\mu_{rs}\ge0` of the touching pairs and L the Laplacian that they weigh, the
    Lagrangian's gradient is :math:`E - LE` and its Hessian :math:`(I - L)\otimes I_c`.

    Raises:
        ConfigError: If there are fewer than two embeddings, one is not finite, or two are less than 1 apart.
    """
    p, c = embeddings.shape
    if p < 2 or not np.isfinite(embeddings).all():
        raise ConfigError(f"embeddings must be finite and at least two; got {p}.")
    pairs, distances = _distances(embeddings)
    if distances.min() < 1 - TOUCHING:
        raise ConfigError(f"distances between embeddings must be at least 1; got {distances.min():.6g}.")
    touching = pairs[np.abs(distances - 1) < TOUCHING]
    slopes = _slopes(embeddings, touching)
    pushes = np.linalg.lstsq(slopes.T, embeddings.ravel())[0]
    left = embeddings.ravel() - slopes.T @ pushes
    laplacian = np.zeros((p, p))
    for (r, s), push in zip(touching, pushes, strict=True):
        laplacian[[r, s], [r, s]] += push
        laplacian[[r, s], [s, r]] -= push
    free = _null_space(np.concatenate([slopes, _rotations(embeddings)]))
    curvatures = np.linalg.eigvalsh(free.T @ np.kron(np.eye(p) - laplacian, np.eye(c)) @ free)
    return Stationarity(
        residual=float(np.linalg.norm(left) / np.linalg.norm(embeddings)),
        least_push=float(min(pushes, default=np.nan)),
        least_curvature=float(min(curvatures, default=np.nan)),
    )


def least_norm(p: int, width: int, seed: int, starts: int = 20) -> Points:
    """The embeddings of least norm, at least 1 apart, of several descents from random ones.

    Raises:
        ConfigError: If there are fewer than two tokens, or no dimension, or no descent arrives.
    """
    if p < 2 or width < 1 or starts < 1:
        raise ConfigError(
            f"least_norm needs at least 2 tokens, 1 dimension and 1 start; got {p}, {width}, {starts}."
        )
    rng = numpy_stream(seed, "grokking/arrangement")
    descents = [_descent(p, width, rng) for _ in range(starts)]
    arrived = [one for one in descents if one is not None]
    if not arrived:
        raise ConfigError(f"none of {starts} descents from random embeddings converged; try another seed.")
    return min(arrived, key=lambda one: float(np.square(one).sum()))


def regular_polygon(p: int) -> Points:
    """p tokens on a circle in the plane, neighbours 1 apart: uniform, and all of the same MED."""
    angles = 2 * np.pi * np.arange(p) / p
    return np.stack([np.cos(angles), np.sin(angles)], 1) / (2 * np.sin(np.pi / p))


def _descent(p: int, width: int, rng: np.random.Generator) -> Points | None:
    pairs = np.stack(np.triu_indices(p, 1), 1)

    def room(flat: np.ndarray) -> np.ndarray:
        x = flat.reshape(p, width)
        return np.square(x[pairs[:, 0]] - x[pairs[:, 1]]).sum(1) - 1

    apart = {"type": "ineq", "fun": room, "jac": lambda flat: 2 * _slopes(flat.reshape(p, width), pairs)}
    result = optimize.minimize(
        lambda flat: 0.5 * flat @ flat,
        rng.standard_normal(p * width),
        jac=lambda flat: flat,
        method="SLSQP",
        constraints=[apart],
        options={"maxiter": 500, "ftol": 1e-14},
    )
    return result.x.reshape(p, width) if result.success and room(result.x).min() > -TOUCHING else None


def _distances(x: Points) -> tuple[Int[np.ndarray, "k 2"], Float[np.ndarray, " k"]]:
    pairs = np.stack(np.triu_indices(len(x), 1), 1)
    return pairs, np.linalg.norm(x[pairs[:, 0]] - x[pairs[:, 1]], axis=1)


def _slopes(x: Points, pairs: Int[np.ndarray, "k 2"]) -> Float[np.ndarray, "k n"]:
    """Derivative of half of each pair's squared distance."""
    slopes, place = np.zeros((len(pairs), *x.shape)), np.arange(len(pairs))
    apart = x[pairs[:, 0]] - x[pairs[:, 1]]
    slopes[place, pairs[:, 0]], slopes[place, pairs[:, 1]] = apart, -apart
    return slopes.reshape(len(pairs), x.size)


def _rotations(x: Points) -> Float[np.ndarray, "k n"]:
    """Motions that turn all tokens together, which change nothing."""
    c = x.shape[1]
    turns = []
    for i, j in zip(*np.triu_indices(c, 1), strict=True):
        motion = np.zeros_like(x)
        motion[:, i], motion[:, j] = -x[:, j], x[:, i]
        turns.append(motion.ravel())
    return np.array(turns).reshape(len(turns), x.size)


def _null_space(rows: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "n m"]:
    _, s, vh = np.linalg.svd(rows)
    return vh[int((s > 1e-9 * max(s, default=1.0)).sum()) :].T
