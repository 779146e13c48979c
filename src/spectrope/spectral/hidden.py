"""Content and position in hidden states: two-way analysis of variance, and the logit terms that follow."""

from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.spectral.checks import check, matrix, real_matrix

PARTS = ("mean", "content", "position", "residual")


@dataclass(frozen=True, eq=False)
class Effects:
    r"""Hidden states as :math:`x = \mu + c_{\text{token}} + p_{\text{position}} + r`, rows of four matrices.

    Args:
        mean: μ repeated, with shape (n, d), in the units of the hidden states; so are the others.
        content: The token's effect.
        position: The position's effect.
        residual: The remainder, whose share measures the violation of x = c + p.
        n_tokens: Number of distinct tokens.
        n_positions: Number of distinct positions.
    """

    mean: Float[Tensor, "n d"]
    content: Float[Tensor, "n d"]
    position: Float[Tensor, "n d"]
    residual: Float[Tensor, "n d"]
    n_tokens: int
    n_positions: int

    def parts(self) -> list[Float[Tensor, "n d"]]:
        """Mean, content, position and residual, as in `PARTS`."""
        return [self.mean, self.content, self.position, self.residual]


@dataclass(frozen=True)
class EffectShares:
    r"""Shares of the variance about the mean, as fractions; on a balanced design they sum to 1.

    Args:
        content: Share of tokens.
        position: Share of positions.
        residual: Share that no sum of the two explains.
        content_null: Expected share of tokens on a balanced design for states that depend on neither,
            (W-1)/(n-1). On others, where tokens tell something of positions, both expectations are larger.
        position_null: Expected share of positions likewise, (P-1)/(n-1), which is (P-1)/(WP-1).
    """

    content: float
    position: float
    residual: float
    content_null: float
    position_null: float


@dataclass(frozen=True, eq=False)
class LogitTerms:
    r"""Inner products of the 16 logit terms :math:`X_a M X_b^\top`, a and b in `PARTS`.

    Args:
        names: (query part, key part) of each term.
        gram: In squared logit units, with shape (16, 16); diagonal on a balanced design.
    """

    names: tuple[tuple[str, str], ...]
    gram: Float[Tensor, "terms terms"]

    @property
    def shares(self) -> dict[tuple[str, str], float]:
        """Energy of each term over that of the logits; they sum to 1 where the terms are orthogonal."""
        total = self.gram.sum().item()
        check(total > 0, "logits must not all be zero: shares of no energy are undefined.")
        return dict(zip(self.names, (self.gram.diagonal() / total).tolist(), strict=True))


def balanced_effects(x: Tensor) -> Effects:
    r"""The four effects on a balanced design: every token at every position.

    Means over positions, over tokens and over both; the four parts are orthogonal, exactly.

    >>> states = torch.randn(5, 1, 4) + torch.randn(1, 7, 4)  # token plus position
    >>> effect_shares(balanced_effects(states)).residual < 1e-12
    True

    Args:
        x: Hidden states by token and position, with shape (W, P, d), W, P >= 2.

    Returns:
        Rows in the order of `x.flatten(0, 1)`.
    """
    check(
        x.ndim == 3 and min(x.shape[:2]) >= 2,
        f"x must have shape (W, P, d), W, P >= 2; got {tuple(x.shape)}.",
    )
    states = real_matrix(x.flatten(0, 1), "x").view(x.shape)
    mean = states.mean((0, 1), keepdim=True)
    content, position = states.mean(1, keepdim=True) - mean, states.mean(0, keepdim=True) - mean
    residual = states - mean - content - position
    rows = [part.expand(states.shape).flatten(0, 1) for part in (mean, content, position, residual)]
    return Effects(*rows, n_tokens=x.shape[0], n_positions=x.shape[1])


def least_squares_effects(x: Tensor, tokens: Tensor, positions: Tensor) -> Effects:
    r"""The additive fit :math:`\mu + c_{w} + p_{i}` on natural text, by least squares.

    Content and position are centred over the rows. They need not be orthogonal, so consider the Gram matrix
    of terms as well as the shares.

    With incidence matrices W of tokens and P of positions, eliminating content from the normal equations
    leaves :math:`(P^\top P - N^\top D^{-1} N)\,p = P^\top x - N^\top D^{-1} W^\top x`, where
    :math:`N = W^\top P` and :math:`D = W^\top W`: a system as large as the number of positions. Of several
    solutions, where some tokens share no position with the others, the one with the least position effects
    is taken.

    >>> tokens, positions = torch.randint(0, 3, (40,)), torch.arange(40) % 10
    >>> states = torch.randn(3, 2)[tokens] + torch.randn(10, 2)[positions]
    >>> effect_shares(least_squares_effects(states, tokens, positions)).residual < 1e-12
    True

    Args:
        x: Hidden states, with shape (n, d).
        tokens: Token id of each row, with shape (n,).
        positions: Position of each row, with shape (n,).

    Raises:
        ConfigError: If the shapes do not match.
    """
    x, by_token, by_position = _design(x, tokens, positions)
    mean = x.mean(0).expand_as(x)
    centred = x - mean
    shared = x.new_zeros(by_token.number, by_position.number)
    shared.index_put_((by_token.label, by_position.label), x.new_ones(()), accumulate=True)
    per_token = shared / by_token.counts
    matrix = torch.diag(by_position.counts[:, 0].to(x)) - shared.T @ per_token
    right = by_position.sums(centred) - per_token.T @ by_token.sums(centred)
    effects = torch.linalg.pinv(matrix, hermitian=True, rtol=1e-12) @ right
    position = effects[by_position.label]
    position = position - position.mean(0)
    content = by_token.means(centred - position)
    residual = centred - content - position
    return Effects(mean, content, position, residual, by_token.number, by_position.number)


def _design(x: Tensor, tokens: Tensor, positions: Tensor) -> tuple[Tensor, "_Groups", "_Groups"]:
    x = real_matrix(x, "x")
    for name, ids in (("tokens", tokens), ("positions", positions)):
        check(ids.shape == x.shape[:1], f"{name} must have shape ({len(x)},); got {tuple(ids.shape)}.")
    return x, _Groups(tokens), _Groups(positions)


class _Groups:
    """Rows that share a label."""

    def __init__(self, labels: Tensor) -> None:
        kinds, self.label = labels.unique(return_inverse=True)
        self.number = len(kinds)
        self.counts = torch.bincount(self.label, minlength=self.number)[:, None]

    def means(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The mean of each row's group, row by row."""
        return (self.sums(x) / self.counts)[self.label]

    def sums(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "groups d"]:
        """The sum over the rows of each group."""
        return x.new_zeros(self.number, x.shape[1]).index_add_(0, self.label, x)


def effect_shares(effects: Effects) -> EffectShares:
    """Shares of content, position and residual, with their expectation under chance.

    >>> shares = effect_shares(balanced_effects(torch.randn(5, 7, 4)))
    >>> f"{shares.content + shares.position + shares.residual:.6f}", shares.content_null == 4 / 34
    ('1.000000', True)

    Raises:
        ConfigError: If all states are equal.
    """
    content, position, residual = ((part**2).sum().item() for part in effects.parts()[1:])
    variation = effects.content + effects.position + effects.residual
    total, left = (variation**2).sum().item(), len(variation) - 1
    floor = 1e-26 * (effects.mean**2).sum().item()
    check(total > floor, "hidden states must not all be equal: shares of no variance are undefined.")
    return EffectShares(
        content=content / total,
        position=position / total,
        residual=residual / total,
        content_null=(effects.n_tokens - 1) / left,
        position_null=(effects.n_positions - 1) / left,
    )


def logit_terms(effects: Effects, form: Tensor) -> LogitTerms:
    r"""The terms of the logits :math:`x_i^\top M x_j` between all pairs of rows, and their inner products.

    .. math:: \langle X_aMX_b^\top, X_{a'}MX_{b'}^\top\rangle
              = \operatorname{tr}(M S_{bb'} M^\top S_{aa'}^\top)

    with cross Gram matrices :math:`S_{ab} = X_a^\top X_b`. For a balanced design all 16 terms are orthogonal;
    for natural text the off-diagonal entries show how far content and position are confounded. The paper's
    Eq. 8 consists of the four terms of content and position.

    >>> terms = logit_terms(balanced_effects(torch.randn(5, 7, 4)), torch.eye(4))
    >>> f"{sum(terms.shares.values()):.6f}", len(terms.names)
    ('1.000000', 16)

    Args:
        effects: Of the hidden states, of width d.
        form: :math:`M = W_Q^\top W_K` of one head, with shape (d, d).
    """
    parts = effects.parts()
    form = real_matrix(form, "form")
    d = parts[0].shape[1]
    check(form.shape == (d, d), f"form must have shape ({d}, {d}); got {tuple(form.shape)}.")
    stacked = torch.stack(parts)
    cross = torch.einsum("and,bne->abde", stacked, stacked)
    keys = torch.einsum("de,abef,gf->abdg", form, cross, form)
    gram = torch.einsum("bcde,agde->abgc", keys, cross)
    names = tuple(product(PARTS, PARTS))
    return LogitTerms(names, gram.reshape(len(names), len(names)))


def commutes_with_rotations(form: Tensor, planes: int, tolerance: float = 1e-10) -> bool:
    r"""Whether M makes sinusoidal positions Toeplitz: each 2 × 2 block must be :math:`[[a, -b], [b, a]]`, all
    else 0.

    Adjacent coordinates (2t, 2t + 1) form a plane, turned by its own frequency; matrices that commute with
    all turns are a space of dimension d within d².

    >>> commutes_with_rotations(torch.tensor([[1.0, -2.0], [2.0, 1.0]]), planes=1)
    True

    Args:
        form: M, with shape (2 planes, 2 planes).
        planes: Number of frequencies.
        tolerance: Relative to the largest entry.
    """
    form = _planar(form, planes)
    return (form - _commuting_part(form, planes)).abs().max().item() <= tolerance * form.abs().max().item()


def commuting_share(form: Tensor, planes: int) -> float:
    r"""Share of the energy of M in its nearest matrix that commutes with all rotations, a fraction.

    It is 1 where sinusoidal positions give Toeplitz logits exactly, and :math:`1/d` on average for a random
    M with independent entries of one variance, d = 2 planes.

    >>> commuting_share(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), planes=1)
    0.5

    Args:
        form: M, with shape (2 planes, 2 planes), not 0.
        planes: Number of frequencies.
    """
    form = _planar(form, planes)
    energy = (form.abs() ** 2).sum().item()
    check(energy > 0, "form must not be zero: shares of no energy are undefined.")
    return (_commuting_part(form, planes).abs() ** 2).sum().item() / energy


def _planar(form: Tensor, planes: int) -> Tensor:
    form = matrix(form, "form")
    check(
        form.shape == (2 * planes, 2 * planes), f"form must be {2 * planes} square; got {tuple(form.shape)}."
    )
    return form


def _commuting_part(form: Float[Tensor, "d d"], planes: int) -> Float[Tensor, "d d"]:
    """The nearest matrix that commutes with all rotations: per diagonal block, a scaled rotation."""
    blocks = form.reshape(planes, 2, planes, 2)
    real, imaginary = blocks[:, 0, :, 0] + blocks[:, 1, :, 1], blocks[:, 1, :, 0] - blocks[:, 0, :, 1]
    turn = torch.stack([torch.stack([real, -imaginary], -1), torch.stack([imaginary, real], -1)], -2) / 2
    kept = torch.diag_embed(turn.diagonal(dim1=0, dim2=1)).permute(2, 0, 3, 1)
    return kept.reshape(form.shape)
