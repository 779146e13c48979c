"""Logits of an encoding for equal content at every position, by lag, averaged over directions."""

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.encodings import Context, Encoding, Form
from spectrope.spectral import nearest_toeplitz

CLOSE = 1e-6  # Of the value at lag 0: differences up to which values count as equal.
SHARED = 64  # Positions on which products of input terms are compared along diagonals.


@torch.no_grad()
def product_lags(encoding: Encoding, n: int, width: int) -> Float[Tensor, " n"] | str:
    r"""Mean logit of equal content at each lag, relative to no positions, or why it is undefined.

    With unit vectors :math:`e_a` as queries and keys and bilinear logits :math:`L(q, k)`, it is
    :math:`\frac{1}{\sqrt d}\sum_a L(e_a, e_a)`, the value for content in random directions: the mean of
    cosines for RoPE, :math:`\alpha G_e + J` for a blend, and a share of each for partial rotations.

    Args:
        encoding: Of one head, or of several that share it.
        n: Number of positions.
        width: Width of queries and keys.
    """
    name = type(encoding).__name__
    if encoding.form is Form.GENERAL and not encoding.factors:
        return f"{name} computes whole logits or outputs from content"
    if not encoding.pairwise:
        return f"what {name} adds or rotates depends on content"
    if encoding.axes > 1:
        return f"{name} reads positions on {encoding.axes} axes, which have no single lag"
    basis = torch.eye(width, dtype=torch.float64)
    try:
        rest = _logits(encoding, 0 * basis, n, 0)
        values, doubled = (_logits(encoding, factor * basis, n, 0) - rest for factor in (1.0, 2.0))
        moved = (_logits(encoding, basis, n, 1) - _logits(encoding, 0 * basis, n, 1))[1:]
    except (RuntimeError, TypeError, AttributeError):  # It looks at hidden states, which are not given here.
        return f"what {name} adds or rotates depends on content"
    scale = values[0].abs().clamp(min=1e-12)
    if (doubled - 4 * values).abs().max() > CLOSE * scale:
        return f"logits under {name} are not bilinear in query and key"
    if (moved - values[:-1]).abs().max() > CLOSE * scale:
        return f"logits under {name} depend on more than the lag"
    if (values - values[0]).abs().max() <= CLOSE * scale:
        return f"{name} does not change the products of queries and keys with the lag"
    return values


def _logits(encoding: Encoding, x: Float[Tensor, "d d"], n: int, key: int) -> Float[Tensor, " n"]:
    """Sum over directions of logits of equal content at n positions, for the key at one of them.

    All keys are rotated together, since frequencies may depend on how long a sequence is.
    """
    d, position = x.shape[1], torch.arange(n)[None]
    heads = getattr(encoding.config, "n_heads", 1)
    x = x[:, None, None].expand(d, heads, n, d)
    q = encoding.rotate(encoding.scaled(x), position, "query")
    k = encoding.rotate(x, position, "key")[:, :, key : key + 1]
    products = (q * d**-0.5) @ k.transpose(-1, -2)
    bias = encoding.bias(Context(x, x[:, :, :1], position, position[:, key : key + 1]))
    return (products if bias is None else products + bias)[:, 0, :, 0].sum(0) / d**0.5


@torch.no_grad()
def input_lags(encoding: Encoding, n: int) -> Float[Tensor, " n"] | str | None:
    r"""Products of input terms at each lag, relative to lag 0, or the reason why they are not Toeplitz.

    These are the position-position logits of a form :math:`M = aI` (Remark 3.2 of arXiv 2505.13027). None
    where the encoding adds nothing to the input.

    Args:
        encoding: Of all layers.
        n: Number of positions.
    """
    width = max((getattr(one.config, "d_model", 0) for one in _terms(encoding)), default=0)
    if width == 0:
        return None
    terms = encoding.embed(torch.zeros(1, n, width, dtype=torch.float64), torch.arange(n)[None])[0]
    if not terms.any():
        return None
    gram = terms[:SHARED] @ terms[:SHARED].T
    rest = gram - nearest_toeplitz(gram).dense()
    if (rest**2).sum() > CLOSE * (gram**2).sum():
        share = 1 - ((rest**2).sum() / (gram**2).sum()).item()
        return (
            f"products of the input terms of {type(encoding).__name__} are not functions of the lag (the "
            f"nearest Toeplitz matrix has {share:.0%} of their energy)"
        )
    return terms @ terms[0] / (terms[0] @ terms[0])


def _terms(encoding: Encoding) -> list[Encoding]:
    return [one for one in encoding.modules() if isinstance(one, Encoding)]
