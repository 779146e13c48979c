"""Summands of logits with relative terms, from a layer's weights and the content that entered it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear

from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.relative import RelativeTerm, n_terms

TableOfLags = Callable[[Int[Tensor, " n"], int], Float[Tensor, "n c"]]
SineOrder = Literal["sines, then cosines", "cosines before sines", "sines and cosines in turns"]
ORDERS: tuple[SineOrder, ...] = get_args(SineOrder)
BASES = (1e3, 1e5, 1e6)
CONTENT = "content to content"


@dataclass(frozen=True, eq=False)
class Summand:
    """One summand of the logits.

    Args:
        name: What meets what.
        factor: That the architecture puts before it.
        values: Its value at relative positions, with shape (b, h, n), without the factor; (b, h, 1) where it
            is the same at all.
        relative: Whether it depends on the relative position.
    """

    name: str
    factor: float
    values: Callable[[Int[Tensor, " n"]], Float[Tensor, "b h _"]]
    relative: bool = True


@dataclass(frozen=True, eq=False)
class Mistake:
    """Summands that are mistaken for the declared ones.

    Args:
        what: The respect in which they differ, as a finding's.
        expected: What is declared in that respect.
        words: What they are instead.
        parts: Makes the summands.
    """

    what: str
    expected: str
    words: str
    parts: Callable[[], list[Summand]]


@dataclass(frozen=True, eq=False)
class Summands:
    """All summands of a layer's logits.

    Args:
        declared: As the architecture has them.
        mistakes: What is mistaken for them.
    """

    declared: list[Summand]
    mistakes: list[Mistake]


def parts_of(
    model: nn.Module, module: str, states: Float[Tensor, "b c"], term: RelativeTerm, declaration: Declaration
) -> Summands | None:
    """The summands of a layer's logits; None where its weights are not those of the library's class.

    Args:
        model: Without its head.
        module: Dotted name of the attention module.
        states: What entered it at every position.
        term: As declared.
        declaration: The configuration.
    """
    own: Any = model.get_submodule(module)
    x = states.double().to(next(own.parameters()).device)
    try:
        if declaration.model_type == "parakeet_encoder":
            return _parakeet(own, x)
        if term.table == "sinusoids":
            return xlnet_parts(own, x)
        if declaration.model_type == "prophetnet":
            return _prophetnet(own, x)
        return _deberta(model, own, x, term, declaration)
    except AttributeError:
        return None


def sinusoids(
    positions: Int[Tensor, " n"], width: int, base: float = 1e4, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "n c"]:
    """Sines, then cosines, of positions at each frequency of Transformer-XL, computed in that precision."""
    frequencies = 1 / torch.pow(base, torch.arange(0, width, 2.0).to(dtype) / width)
    angles = positions.cpu().to(dtype)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1).double().to(positions.device)


def xlnet_parts(own: Any, x: Float[Tensor, "b c"], keys: Float[Tensor, "b c"] | None = None) -> Summands:
    """The summands of an attention module of XLNet.

    Args:
        own: The module.
        x: What entered it at every position.
        keys: What entered on the side of the keys, where that is another content.
    """
    q, k, r = (getattr(own, name).detach().double().to(x.device) for name in ("q", "k", "r"))
    biases = tuple(getattr(own, name).detach().double().to(x.device) for name in ("r_w_bias", "r_r_bias"))
    queries = torch.einsum("bc,chd->bhd", x, q)
    projected_keys = torch.einsum("bc,chd->bhd", x if keys is None else keys, k)
    return transformer_xl(queries, projected_keys, r, biases, sinusoids)


def _parakeet(own: Any, x: Float[Tensor, "b c"]) -> Summands:
    """Parakeet's, whose sines and cosines lie in turns, and whose heads may share keys."""
    heads, width = own.bias_u.shape
    queries, keys = (projected(one, x).unflatten(-1, (-1, width)) for one in (own.q_proj, own.k_proj))
    r = own.relative_k_proj.weight.detach().double().T.unflatten(-1, (heads, width))
    biases = own.bias_u.detach().double(), own.bias_v.detach().double()
    keys = keys.repeat_interleave(heads // keys.shape[1], 1)
    return transformer_xl(queries, keys, r, biases, sinusoids, order="sines and cosines in turns")


def transformer_xl(
    queries: Float[Tensor, "b h d"],
    keys: Float[Tensor, "b h d"],
    r: Float[Tensor, "c h d"],
    biases: tuple[Float[Tensor, "h d"], Float[Tensor, "h d"]],
    table: Callable[..., Tensor],
    further: Sequence[Summand] = (),
    order: SineOrder = "sines, then cosines",
) -> Summands:
    """The four summands of Transformer-XL, and what is mistaken for them.

    Args:
        queries: Projected content of the query.
        keys: Projected content of the key.
        r: Projection of the sines and cosines.
        biases: Vectors that stand in the place of a query: to keys, and to positions.
        table: Sines, then cosines, of positions, given these, the width and the base.
        further: Summands beside them.
        order: In which the architecture has sines and cosines.
    """
    word, relative = biases
    factor = queries.shape[-1] ** -0.5

    def met(vectors: Float[Tensor, "b h d"], angles: TableOfLags) -> Callable[[Tensor], Tensor]:
        side = torch.einsum("bhd,chd->bhc", vectors, r)
        return lambda at: side @ angles(at, len(r)).T.to(side)

    def arranged(angles: TableOfLags, word: Tensor = word, relative: Tensor = relative) -> list[Summand]:
        return [
            constant(CONTENT, factor, (queries * keys).sum(-1)),
            constant("bias to content", factor, (word * keys).sum(-1)),
            Summand("content to position", factor, met(queries, angles)),
            Summand("bias to position", factor, met(relative.expand_as(queries), angles)),
            *further,
        ]

    declared = _ordered(table, order)
    exchanged = partial(arranged, declared, relative, word)
    swap = Mistake("relative term, biases", "r_w_bias to keys, r_r_bias to positions", "exchanged", exchanged)
    usual = f"{order}, of base 10000"
    tables = [
        Mistake("relative term, sinusoids", usual, words, partial(arranged, angles))
        for words, angles in _other_tables(table, order)
    ]
    return Summands(arranged(declared), [swap, *tables])


def _ordered(table: Callable[..., Tensor], order: SineOrder) -> Callable[..., Tensor]:
    """A table of sines, then cosines, with these in another order."""

    def of(at: Tensor, width: int, *base: float) -> Tensor:
        halves = table(at, width, *base)
        if order == "cosines before sines":
            return halves.roll(width // 2, 1)
        in_turns = order == "sines and cosines in turns"
        return halves.unflatten(1, (2, -1)).transpose(1, 2).flatten(1) if in_turns else halves

    return of


def _other_tables(table: Callable[..., Tensor], order: SineOrder) -> Iterator[tuple[str, TableOfLags]]:
    """Tables that are mistaken for Transformer-XL's."""
    own = _ordered(table, order)
    for other in ORDERS:
        if other != order:
            yield other, _ordered(table, other)

    def progression(at: Tensor, width: int) -> Tensor:
        exponent = width / max(width - 2, 1)
        return own(at, width, 1e4**exponent)

    yield "frequencies in another progression", progression
    for base in BASES:
        yield f"base {base:g}", lambda at, width, base=base: own(at, width, base)


def constant(name: str, factor: float, values: Float[Tensor, "b h"]) -> Summand:
    """A summand that is the same at all relative positions."""
    return Summand(name, factor, lambda _: values[..., None], relative=False)


def _prophetnet(own: Any, x: Float[Tensor, "b c"]) -> Summands:
    """ProphetNet's, whose decoder projects the content of the query to a bias for each bucket and head."""
    heads = own.num_attn_heads
    queries, keys = (projected(one, x).unflatten(-1, (heads, -1)) for one in (own.query_proj, own.key_proj))
    biases = projected(own.relative_pos_embeddings, x).unflatten(-1, (-1, heads)).transpose(1, 2)
    content = constant(CONTENT, queries.shape[-1] ** -0.5, (queries * keys).sum(-1))
    last = biases.shape[-1] - 1
    relative = Summand("content to position", 1.0, lambda at: biases[..., at.clamp(0, last)])
    return Summands([content, relative], [])


def _deberta(
    model: nn.Module, own: Any, x: Float[Tensor, "b c"], term: RelativeTerm, declaration: Declaration
) -> Summands:
    table, mistakes = _relative_table(model), []
    normed = _normalised(table, model, declaration)
    if normed is not table:
        plain = partial(_disentangled, own, x, table, term, declaration)
        mistakes = [Mistake("relative term, table", "rows normalised", "rows as they are", plain)]
    return Summands(_disentangled(own, x, normed, term, declaration), mistakes)


def _disentangled(
    own: Any, x: Float[Tensor, "b c"], table: Tensor, term: RelativeTerm, declaration: Declaration
) -> list[Summand]:
    heads = declaration.n_heads
    old = declaration.model_type == "deberta"
    queries, keys, projections = (_of_old if old else _of_new)(own, x, term, declaration)
    queries, keys = (one.unflatten(-1, (heads, -1)) for one in (queries, keys))
    factor = (queries.shape[-1] * n_terms(declaration)) ** -0.5
    content = {"content to position": queries, "position to content": keys}

    def met(name: str) -> Callable[[Tensor], Tensor]:
        scores = _met(content[name], projections[name], table)
        last, middle = scores.shape[-1] - 1, scores.shape[-1] // 2
        return lambda at: scores[..., (at + middle).clamp(0, last)]

    parts = [
        constant(CONTENT, factor, (queries * keys).sum(-1)),
        *(Summand(name, factor, met(name)) for name in term.parts),
    ]
    talking = old and declaration.get("talking_head")
    return [_mixed(part, own.head_logits_proj) for part in parts] if talking else parts


def _mixed(part: Summand, heads: nn.Linear) -> Summand:
    """A summand of logits that talking heads mix (Shazeer et al., 2020)."""
    weight = heads.weight.detach().double()
    return replace(part, values=lambda at: torch.einsum("gh,bhn->bgn", weight, part.values(at)))


def _met(
    content: Float[Tensor, "b h d"], projection: nn.Linear, table: Float[Tensor, "rows c"]
) -> Float[Tensor, "b h rows"]:
    """Products of content with projected rows, by products of the content with the projection."""
    weight = projection.weight.detach().double().unflatten(0, content.shape[1:])
    scores = torch.einsum("bhd,hdc->bhc", content, weight) @ table.T
    if projection.bias is None:
        return scores
    bias = projection.bias.detach().double().view(content.shape[1:])
    return scores + (content * bias).sum(-1, keepdim=True)


def _encoder(model: nn.Module) -> Any:
    return next((one for one in model.modules() if "rel_embeddings" in one._modules), model)


def _relative_table(model: nn.Module) -> Float[Tensor, "rows c"]:
    """DeBERTa's table of relative positions."""
    return _encoder(model).rel_embeddings.weight.detach().double()


def _normalised(
    table: Float[Tensor, "rows c"], model: nn.Module, declaration: Declaration
) -> Float[Tensor, "rows c"]:
    """The same normalised, where the configuration says so."""
    normed = "layer_norm" in str(declaration.get("norm_rel_ebd")).lower()
    if declaration.model_type == "deberta" or not normed:
        return table
    norm = _encoder(model).LayerNorm
    weight, bias = (one.detach().double() for one in (norm.weight, norm.bias))
    return layer_norm(table, table.shape[-1:], weight, bias, declaration.get("layer_norm_eps"))


def _of_old(
    own: Any, x: Tensor, term: RelativeTerm, declaration: Declaration
) -> tuple[Tensor, Tensor, dict[str, nn.Linear]]:
    """Queries, keys and projections of relative positions of the first DeBERTa, whose own are in one."""
    whole = linear(x, own.in_proj.weight.detach().double()).unflatten(-1, (declaration.n_heads, -1))
    queries, keys, _ = (one.flatten(1) for one in whole.chunk(3, -1))
    names = {"content to position": "pos_proj", "position to content": "pos_q_proj"}
    projections = {part: getattr(own, names[part]) for part in term.parts}
    return queries + own.q_bias.detach().double(), keys, projections


def _of_new(
    own: Any, x: Tensor, term: RelativeTerm, declaration: Declaration
) -> tuple[Tensor, Tensor, dict[str, nn.Linear]]:
    """The same of DeBERTa-v2, whose projections relative positions may share."""
    names = {"content to position": "pos_key_proj", "position to content": "pos_query_proj"}
    if declaration.get("share_att_key"):
        names = {"content to position": "key_proj", "position to content": "query_proj"}
    projections = {part: getattr(own, names[part]) for part in term.parts}
    return projected(own.query_proj, x), projected(own.key_proj, x), projections


def projected(projection: nn.Linear, x: Tensor) -> Tensor:
    bias = None if projection.bias is None else projection.bias.detach().double()
    return linear(x, projection.weight.detach().double(), bias)
