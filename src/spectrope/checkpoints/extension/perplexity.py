"""Losses of language models on long texts: in one pass, in a sliding window, at tokens that need them."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from spectrope.core import ConfigError, numpy_stream

ALPHA, BETA = 2.0, -2.0  # Of key tokens, as in the paper.


@torch.no_grad()
def losses(model: nn.Module, ids: Int[Tensor, " t"]) -> Float[Tensor, " u"]:
    """Loss in nats of every token but the first, given all tokens before it, with shape (t - 1,)."""
    logits = model(input_ids=ids[None].to(next(model.parameters()).device), use_cache=False).logits[0]
    return F.cross_entropy(logits[:-1].float().cpu(), ids[1:].cpu(), reduction="none").double()


def sliding_losses(model: nn.Module, ids: Int[Tensor, " t"], window: int, stride: int) -> Float[Tensor, " u"]:
    """The same where a token sees at most the `window` - 1 tokens before it.

    The first window scores all of its tokens; each further one starts `stride` tokens later and scores the
    last `stride`, so that they see at least `window` - `stride` tokens.

    Raises:
        ConfigError: If the stride is not from 1 to the window, less one.
    """
    if not 1 <= stride < window:
        raise ConfigError(f"stride must be from 1 to {window - 1}, below the window; got {stride}.")
    scored = [losses(model, ids[:window])]
    end = window
    while end < len(ids):
        new = min(stride, len(ids) - end)
        end += new
        scored.append(losses(model, ids[end - new - (window - stride) : end])[-new:])
    return torch.cat(scored)


def key_tokens(
    long: Float[Tensor, " u"], short: Float[Tensor, " u"], alpha: float = ALPHA, beta: float = BETA
) -> Bool[Tensor, " u"]:
    r"""Whether tokens need the long context: :math:`\ln P_l - \ln P_s > \alpha` and :math:`\ln P_l > \beta`.

    References:
        What is Wrong with Perplexity for Long-context Language Modeling? (Fang et al., 2025); the authors'
        package longppl.
    """
    return (short - long > alpha) & (long < -beta)


@torch.no_grad()
def needle_accuracy(
    model: nn.Module, tokens: Int[Tensor, " v"], length: int, n: int = 8, seed: int = 0
) -> float:
    """How often a model, among random tokens, predicts the token that followed an earlier occurrence of the
    current one.

    A pair of tokens that occur nowhere else stands at a depth that is spread evenly over the sequences; the
    last token is the first of the pair, and the second is to follow.

    Args:
        model: A language model.
        tokens: Ids to draw from.
        length: Tokens of each sequence.
        n: Sequences.
        seed: Names the draws.

    Raises:
        ConfigError: If there is no room, or too few tokens.
    """
    if length < 4 or len(tokens) < 3:
        raise ConfigError(f"a needle needs 4 tokens of 3 kinds; got {length} of {len(tokens)}.")
    stream, hits = numpy_stream(seed, "needle"), 0
    for number in range(n):
        order = torch.from_numpy(stream.permutation(len(tokens)))
        first, second, rest = tokens[order[0]], tokens[order[1]], tokens[order[2:]]
        row = rest[torch.from_numpy(stream.integers(len(rest), size=length))]
        depth = round(number / max(1, n - 1) * (length - 4))
        row[depth], row[depth + 1], row[-1] = first, second, first
        device = next(model.parameters()).device
        hits += int(model(input_ids=row[None].to(device), use_cache=False).logits[0, -1].argmax()) == int(
            second
        )
    return hits / n
