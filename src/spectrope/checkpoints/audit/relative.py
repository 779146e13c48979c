"""Relative terms of logits that depend on the content too: what a configuration declares of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from spectrope.checkpoints.audit.bias import Buckets
from spectrope.checkpoints.audit.fields import Declaration

PartName = Literal["content to position", "position to content", "bias to position"]


@dataclass(frozen=True)
class Lags:
    """Lags themselves, up to a largest one.

    Args:
        past: Largest lag told apart from larger ones; None for no limit.
        ahead: The same of keys after the query.
    """

    past: int | None = None
    ahead: int | None = None

    def of(self, lag: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """The lag, or the limit on its side."""
        if self.past is None or self.ahead is None:
            return lag
        return lag.clamp(-self.ahead, self.past)

    def __str__(self) -> str:
        return "lags without a limit" if self.past is None else f"lags from -{self.ahead} to {self.past}"


@dataclass(frozen=True)
class LogBuckets:
    r"""DeBERTa-v2's buckets: lags up to half of their number, then in proportion to the logarithm.

    With m half the number of buckets, a lag of absolute value n > m goes to
    :math:`m + \lceil (m - 1) \log(n / m) / \log((M - 1) / m) \rceil` on its side, computed in float32 as by
    the library, and limited to the rows of the table.

    Args:
        n_buckets: Rows of the table on either side.
        max_distance: The lag M at which the last bucket is reached.

    References:
        DeBERTaV3 (He et al., 2021); `make_log_bucket_position` of the authors' code.
    """

    n_buckets: int
    max_distance: int

    def of(self, lag: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Bucket of each lag, 0 that of lag 0."""
        return self._rounded(lag, torch.ceil)

    def of_floors(self, lag: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Bucket of each lag if its logarithm is rounded down instead of up."""
        return self._rounded(lag, torch.floor)

    def _rounded(self, lag: Int[Tensor, " n"], whole: Callable[[Tensor], Tensor]) -> Int[Tensor, " n"]:
        half, size = self.n_buckets // 2, lag.abs()
        ratio = torch.tensor((self.max_distance - 1) / half)
        steps = whole(torch.log(size.clamp(min=half) / half) / torch.log(ratio) * (half - 1)).long()
        buckets = torch.where(size <= half, lag, (half + steps) * lag.sign())
        return buckets.clamp(-self.n_buckets, self.n_buckets - 1)

    def __str__(self) -> str:
        return f"{self.n_buckets} log buckets up to lag {self.max_distance}"


Lookup = Lags | LogBuckets | Buckets


@dataclass(frozen=True)
class RelativeTerm:
    """A relative term of the logits that depends on the content of the query or of the key.

    Args:
        parts: Its summands.
        lookup: Which relative position stands for each lag.
        table: What holds the vectors of relative positions: "learned" rows, or "sinusoids".
        words: How a measured lookup departs from a declared one, "" where it does not.
    """

    parts: tuple[PartName, ...]
    lookup: Lookup
    table: Literal["learned", "sinusoids"]
    words: str = ""

    def __str__(self) -> str:
        return f"{self.table}, {' and '.join(self.parts)}: {self.words or self.lookup}"


def declared_relative(declaration: Declaration, stack: str) -> RelativeTerm | None:
    """The relative term that a configuration declares for a stack of layers; None for none."""
    match declaration.model_type:
        case "xlnet":
            return _xlnet(declaration)
        case "funnel" | "parakeet_encoder":
            return RelativeTerm(("content to position", "bias to position"), Lags(), "sinusoids")
        case "deberta" | "deberta-v2":
            return _deberta(declaration)
        case "prophetnet" if stack == "decoder":
            sizes = declaration.number("num_buckets"), declaration.number("relative_max_distance")
            return RelativeTerm(("content to position",), Buckets(False, *sizes), "learned")
        case _:
            return None


def n_terms(declaration: Declaration) -> int:
    """Terms of the logits that share one factor: DeBERTa counts those that `pos_att_type` names, also where
    it adds none of them."""
    types = _types(declaration) if declaration.model_type in ("deberta", "deberta-v2") else []
    if declaration.model_type == "deberta":
        return 1 + len(types)
    return 1 + len({"c2p", "p2c"} & {*types})


def _types(declaration: Declaration) -> list[str]:
    types = declaration.get("pos_att_type") or []
    return [one.strip() for one in types.lower().split("|")] if isinstance(types, str) else list(types)


def _xlnet(declaration: Declaration) -> RelativeTerm:
    limit = int(declaration.get("clamp_len") or -1)
    lags = Lags(limit, limit) if limit > 0 else Lags()
    return RelativeTerm(("content to position", "bias to position"), lags, "sinusoids")


def _deberta(declaration: Declaration) -> RelativeTerm | None:
    names: dict[str, PartName] = {"c2p": "content to position", "p2c": "position to content"}
    parts: tuple[PartName, ...] = tuple(name for kind, name in names.items() if kind in _types(declaration))
    if not declaration.get("relative_attention") or not parts:
        return None
    reach = int(declaration.get("max_relative_positions") or -1)
    reach = reach if reach > 0 else declaration.number("max_position_embeddings")
    buckets = int(declaration.get("position_buckets") or -1)
    if declaration.model_type == "deberta-v2" and buckets > 0:
        return RelativeTerm(parts, LogBuckets(buckets, reach), "learned")
    return RelativeTerm(parts, Lags(reach - 1, reach), "learned")
