"""Segments, memories and a second stream of queries, which XLNet and Funnel have beside relative terms."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Call, Inputs, before, recorded
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.funnel import funnel_parts
from spectrope.checkpoints.audit.places import Places
from spectrope.checkpoints.audit.relative import RelativeTerm
from spectrope.checkpoints.audit.relative_fit import explained
from spectrope.checkpoints.audit.relative_mistakes import Logits
from spectrope.checkpoints.audit.relative_parts import Mistake, Summand, Summands, xlnet_parts
from spectrope.checkpoints.probes.constant_content import LayerKernel, constant_like

TOKENS, MEMORIES = 24, 9  # Of the pass through XLNet.
TARGETS = (5, 12, 23)  # Tokens that the second stream predicts.
SEGMENTS = "relative term, segments"


@dataclass(frozen=True, eq=False)
class SegmentPairs:
    """Pairs of queries and keys whose logits are explained together.

    Args:
        lag: Of each query and key.
        chosen: Which pairs.
        same: Whether their segments are the same.
    """

    lag: Int[Tensor, "i j"]
    chosen: Bool[Tensor, "i j"]
    same: Bool[Tensor, "i j"]

    @property
    def order(self) -> Int[Tensor, " pairs"]:
        """Chosen pairs, by ascending lag."""
        return self.lag[self.chosen].argsort(stable=True)

    def of(self, x: Tensor) -> Tensor:
        """Values of the chosen pairs, with shape (..., pairs)."""
        return x[..., self.chosen][..., self.order]

    def seen(self, logits: Float[Tensor, "b h i j"]) -> Logits:
        """Logits of the pairs."""
        return Logits(self.of(self.lag), self.of(logits.double().cpu()))


def segment_summands(
    queries: Float[Tensor, "b h d"],
    bias: Float[Tensor, "h d"],
    rows: Float[Tensor, "2 h d"],
    same: Bool[Tensor, " pairs"],
) -> list[Summand]:
    """The terms of pairs of segments.

    Args:
        queries: Projected content of the query.
        bias: What stands in the place of the query.
        rows: Vectors of pairs of different segments and of the same one.
        same: Whether segments of each pair are the same.
    """
    factor = queries.shape[-1] ** -0.5

    def met(vectors: Float[Tensor, "b h d"]) -> Float[Tensor, "b h pairs"]:
        both = torch.einsum("bhd,shd->bhs", vectors, rows).cpu()
        return torch.where(same, both[..., 1:], both[..., :1])

    values = {"content to segment": met(queries), "bias to segment": met(bias.expand_as(queries))}
    return [
        Summand(name, factor, lambda _, x=x: x, relative=False)  # Of the pairs, whatever their lags.
        for name, x in values.items()
    ]


def segment_findings(
    call: Call, pairs: SegmentPairs, parts: Summands, term: RelativeTerm, noise: float, note: str
) -> Iterator[Discrepancy]:
    """Where logits of pairs differ from their summands.

    Args:
        call: Which shows its logits.
        pairs: Of its queries and keys.
        parts: The summands, at the lags of the pairs.
        term: The relative term as declared.
        noise: Relative rounding error of the model's arithmetic.
        note: On the pass.
    """
    assert call.logits is not None
    scale, findings, _ = explained(pairs.seen(call.logits), parts, term, noise)
    factor = parts.declared[0].factor
    if not findings and scale is not None and scale != factor:
        residual = abs(scale / factor - 1)
        findings = [Discrepancy("attention scale", f"{factor:.5g}", f"{scale:.5g}", residual=residual)]
    yield from (replace(one, note=one.note or note) for one in findings)


def funnel_segments(
    model: nn.Module, kernel: LayerKernel, places: Places, term: RelativeTerm, types: Tensor, noise: float
) -> Iterator[Discrepancy]:
    """Findings of a layer of Funnel whose tokens are of several segments.

    Args:
        model: Without its head.
        kernel: Of the layer.
        places: Positions of queries and keys.
        term: The relative term as declared.
        types: Segment of each token; 2 is that of <cls>, which belongs to all.
        noise: Relative rounding error of the model's arithmetic.
    """
    call, states = kernel.call, kernel.states
    parts = None if states is None else funnel_parts(model, call.module, states)
    if states is None or parts is None or call.logits is None:
        return
    rows, columns = (types[at] for at in (places.queries, places.keys))
    same = (rows[:, None] == columns) | (rows[:, None] == 2) | (columns == 2)
    pairs = SegmentPairs(places.lag, places.related, same)
    own: Any = model.get_submodule(call.module)
    queries, (bias, table) = funnel_queries(own, states), _rows(own)
    further, exchanged = (segment_summands(queries, bias, x, pairs.of(same)) for x in (table, table.flip(0)))
    whole = _with_segments(parts, further, exchanged)
    yield from segment_findings(call, pairs, whole, term, noise, "with tokens of two segments")


def funnel_queries(own: Any, states: Float[Tensor, "b c"]) -> Float[Tensor, "b h d"]:
    """Projected content of the queries."""
    weight = own.q_head.weight.detach().double().cpu()
    return (states.double() @ weight.T).unflatten(-1, (own.r_w_bias.shape[0], -1))


def _rows(own: Any) -> tuple[Float[Tensor, "h d"], Float[Tensor, "2 h d"]]:
    """What stands in the place of a query, and the vectors of pairs of segments."""
    return own.r_s_bias.detach().double().cpu(), own.seg_embed.detach().double().cpu()


def _with_segments(parts: Summands, further: list[Summand], exchanged: list[Summand]) -> Summands:
    """The summands with those of segments, in place of one that is the same for all pairs.

    Args:
        parts: Without segments, or with all tokens in one.
        further: Terms of pairs of segments.
        exchanged: The same with the vectors exchanged.
    """

    def changed(some: list[Summand], others: list[Summand]) -> list[Summand]:
        return [*(one for one in some if one.name != "segment"), *others]

    mistakes = [replace(one, parts=lambda one=one: changed(one.parts(), further)) for one in parts.mistakes]
    words = "vectors of equal and of different segments"
    mistakes.append(Mistake(SEGMENTS, words, "exchanged", lambda: changed(parts.declared, exchanged)))
    return Summands(changed(parts.declared, further), mistakes)


@dataclass(frozen=True, eq=False)
class TwoStreams:
    """A pass through XLNet with memories, two segments, an order of tokens and a second stream.

    Args:
        model: Without its head.
        modules: Dotted names of its attention modules.
        declaration: Its configuration.
        term: The relative term as declared.
        noise: Relative rounding error of the model's arithmetic.
        seed: Of the contents and of the order.
        second: Whether to run the second stream.
    """

    model: nn.Module
    modules: list[str]
    declaration: Declaration
    term: RelativeTerm
    noise: float
    seed: int
    second: bool = True

    def findings(self) -> list[tuple[str, Discrepancy]]:
        """What differs, with the name of the module.

        Raises:
            RuntimeError: By the model, if it does not run with a second stream in its precision.
        """
        calls, contents = self._calls()
        return [*self._compared(calls, contents)]

    def _compared(
        self, calls: dict[str, list[Call]], contents: dict[str, list[Tensor]]
    ) -> Iterator[tuple[str, Discrepancy]]:
        for module in self.modules:
            for stream, call in enumerate(calls[module]):
                found = self._of_call(call, contents[module], second=stream > 0)
                yield from ((module, one) for one in found)

    @torch.no_grad()
    def _calls(self) -> tuple[dict[str, list[Call]], dict[str, list[Tensor]]]:
        """Calls of each module, and what entered its streams at every position."""
        calls: dict[str, list[Call]] = {name: [] for name in self.modules}
        contents: dict[str, list[Tensor]] = {}

        def enter(name: str, args: Any, given: dict[str, Any]) -> Any:
            streams = [x for x in args[:2] if x is not None]
            filled = [
                constant_like(x.transpose(0, 1), self.seed, f"{name}{n}").transpose(0, 1)
                for n, x in enumerate(streams)
            ]
            contents[name] = [x[0].double().cpu() for x in filled]
            memories = filled[0][:1].expand_as(given["mems"])
            return (*filled, *args[len(streams) :]), given | {"mems": memories}

        def receive(call: Call) -> None:
            calls[call.module].append(call.cpu())

        with before(self.model, self.modules, enter), recorded(self.model, receive):
            self.model(**self._inputs())
        return calls, contents

    def _inputs(self) -> dict[str, Any]:
        own: Any = next(self.model.parameters())
        memory = own.new_zeros(MEMORIES, 2, self.declaration.width)
        target = own.new_zeros(2, len(TARGETS), TOKENS)
        target[:, range(len(TARGETS)), TARGETS] = 1
        given: dict[str, Any] = Inputs(2, TOKENS).of(self.model) | {
            "mems": [memory] * self.declaration.number("n_layer", "num_hidden_layers"),
            "use_mems": True,
            "token_type_ids": self._types.expand(2, -1).to(own.device),
        }
        if self.second:
            given["target_mapping"] = target
        if not self._causal:
            given["perm_mask"] = (~self._earlier).expand(2, -1, -1).to(own)
        return given

    @property
    def _types(self) -> Int[Tensor, " q"]:
        """Segment of each token; memories are of segment 0."""
        return (torch.arange(TOKENS) >= 10).long() + (torch.arange(TOKENS) == TOKENS - 1).long()

    @property
    def _earlier(self) -> Bool[Tensor, "q q"]:
        """Whether the token of a column comes before that of a row in the order of prediction."""
        place = torch.randperm(TOKENS, generator=torch.Generator().manual_seed(self.seed))
        return place[None, :] < place[:, None]

    def _allowed(self, second: bool) -> Bool[Tensor, "q k"]:
        """Keys that each query of a stream sees: memories, earlier tokens, and itself in the first stream."""
        i, j = torch.arange(TOKENS)[:, None], torch.arange(TOKENS + MEMORIES)
        if self._causal:
            seen = j <= i + MEMORIES
            same_length = bool(self.declaration.get("same_length"))
            return seen & ((j >= i) | (j >= TOKENS)) if same_length else seen
        seen = torch.cat([torch.ones(TOKENS, MEMORIES, dtype=torch.bool), self._earlier], 1)
        return seen if second else seen | (j == i + MEMORIES)

    @property
    def _causal(self) -> bool:
        """Whether attention is causal; the model then takes no order of tokens for two sequences."""
        return self.declaration.get("attn_type") == "uni"

    def _of_call(self, call: Call, contents: list[Tensor], *, second: bool) -> Iterator[Discrepancy]:
        name = "the second stream" if second else "the first stream"
        if call.logits is None or call.logits.shape[-1] != TOKENS + MEMORIES:
            yield Discrepancy(f"mask with memories in {name}", f"{MEMORIES} memories seen", "another number")
            return
        wanted, seen = self._allowed(second), call.allowed[0, 0]
        if not torch.equal(wanted, seen):
            off = int((wanted != seen).sum())
            yield Discrepancy(
                f"mask in {name}",
                "memories, earlier tokens" + ", itself" * (not second),
                f"others, at {off} of {wanted.numel()} pairs",
            )
            return
        types = self._types
        same = types[:, None] == torch.cat([torch.zeros(MEMORIES, dtype=torch.long), types])
        lag = torch.arange(TOKENS)[:, None] + MEMORIES - torch.arange(TOKENS + MEMORIES)
        chosen = wanted.clone()
        if second:
            chosen[[row for row in range(TOKENS) if row not in TARGETS]] = False
        pairs = SegmentPairs(lag, chosen, same)
        own: Any = self.model.get_submodule(call.module)
        keys, queries = contents[0], contents[int(second)]
        parts = xlnet_parts(own, queries, keys)
        projected = torch.einsum("bc,chd->bhd", queries, own.q.detach().double().cpu())
        bias, rows = _rows(own)
        rows = rows.flip(0)  # Row 0 is that of the same segment.
        further = segment_summands(projected, bias, rows, pairs.of(same))
        exchanged = segment_summands(projected, bias, rows.flip(0), pairs.of(same))
        whole = _with_segments(parts, further, exchanged)
        note = f"in {name}, with memories and segments"
        yield from segment_findings(call, pairs, whole, self.term, self.noise, note)
