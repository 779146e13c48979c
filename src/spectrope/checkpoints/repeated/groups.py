"""Groups of heads that attend alike, and what each group loses without its bands."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

import polars as pl
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.ablation.rotary import RotatedHeads, rotations_recorded
from spectrope.checkpoints.ablation.sources import pieces, rotary_means
from spectrope.checkpoints.ablation.stages import CheckpointStages
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.adapters import before, evaluating
from spectrope.checkpoints.sequences import Sequences
from spectrope.encodings import Band
from spectrope.lab import AttendedHead, AttendedSums

PREVIOUS, INDUCTION = "previous-token", "induction"
ATTENDS = 0.3  # Least mean attention of a group's heads to its tokens.
BANDS = tuple(Band(index=index, of=4) for index in range(4))
TOKENS = 4096  # Tokens of a batch.

HeadChange = Callable[[RotatedHeads], Float[Tensor, "b t f"]]


def group_of(head: AttendedHead) -> str | None:
    """The group of a head: where at least 30 % of its attention lies, the larger one of two.

    Previous-token heads attend to the token before the current one, induction heads to tokens that followed
    an earlier occurrence of the current one.
    """
    attention, group = max((head.previous, PREVIOUS), (head.induction or 0.0, INDUCTION))
    return group if attention >= ATTENDS else None


def heads_of(subject: CheckpointSubject, data: Sequences) -> list[AttendedHead]:
    """Where the heads of a model attend, as a mean over all sequences."""
    found: list[AttendedHead] = []

    def look(place: int, heads: RotatedHeads, piece: Sequences) -> None:
        sums, with_sinks = AttendedSums(), heads.call.sinks is not None
        sums.add(heads.pattern(), piece.ids, piece.real, with_sinks=with_sinks)
        found.extend(sums.heads(place))

    with evaluating(subject.model):
        rotary_means(subject, data, len(data) * data.width, look)
    return found


def group_costs(subject: CheckpointSubject, data: Sequences, heads: Collection[AttendedHead]) -> pl.DataFrame:
    """What each group of heads costs under each intervention, all of its heads being changed in one pass.

    Returns:
        A row per group, intervention and band, with the drop of accuracy in points and the increase of the
        loss in nats, each the mean over sequences. `remove-band` treats all lags as 0 in pairs of the band;
        `silence-band` leaves these pairs out of the logits; `content-only` treats all lags as 0; `zero`
        silences the heads. A group without heads costs nothing.
    """
    intact = scores_together(subject, data, (), silent)
    rows: list[dict[str, Any]] = []
    for group in (PREVIOUS, INDUCTION):
        members = [(head.layer, head.head) for head in heads if group_of(head) == group]
        for name, band, change in changes():
            changed = scores_together(subject, data, members, change) if members else intact
            loss, accuracy = (changed - intact).mean(0).tolist()
            place = None if band is None else band.index
            costs = {"drop": -100 * accuracy, "loss_increase": loss}
            rows.append({"group": group, "intervention": name, "band": place, **costs})
    return pl.DataFrame(rows)


def changes() -> Iterator[tuple[str, Band | None, HeadChange]]:
    """The interventions, each with its name and band."""
    for band in BANDS:
        yield "remove-band", band, _filled(f"remove-band@{band.index}of{band.of}")
        yield "silence-band", band, _silenced(band)
    yield "content-only", None, _filled("content-only")
    yield "zero", None, silent


def silent(heads: RotatedHeads) -> Float[Tensor, "b t f"]:
    """Zeros in place of all heads."""
    return torch.zeros_like(heads.intact())


def _filled(fill: str) -> HeadChange:
    return lambda heads: heads.output(fill, None)


def _silenced(band: Band) -> HeadChange:
    return lambda heads: heads.silenced(band)


@torch.no_grad()
def scores_together(
    subject: CheckpointSubject, data: Sequences, members: Collection[tuple[int, int]], change: HeadChange
) -> Float[Tensor, "n 2"]:
    """Mean loss in nats and accuracy of every sequence with several heads changed in one pass.

    Heads in later layers see what changes in earlier ones have made, unlike with `checkpoint_scores`.

    Args:
        subject: A model in which one module rotates all layers.
        data: The sequences.
        members: Place of the attention module and number of each head to change.
        change: What takes the place of these heads.
    """
    scores = torch.zeros(len(data), 2, dtype=torch.float64)
    sites = {site.projection: (place, site) for place, site in enumerate(subject.sites)}
    calls: dict[str, RotatedHeads] = {}

    def note(heads: RotatedHeads) -> None:
        calls[heads.call.module] = heads

    def put(projection: str, args: Any, given: Any) -> Any:
        place, site = sites[projection]
        calls[site.module].require_bare(args[0])
        heads, changed = args[0].clone(), change(calls[site.module])
        for number in (number for at, number in members if at == place):
            columns = slice(number * site.width, (number + 1) * site.width)
            heads[..., columns] = changed[..., columns]
        return (heads, *args[1:]), given

    concerned = [name for name, (place, _) in sites.items() if any(at == place for at, _ in members)]
    with (
        evaluating(subject.model),
        rotations_recorded(subject.model, subject.rotations, note),
        before(subject.model, concerned, put),
    ):
        for index, piece in pieces(data, TOKENS):
            scores[index.cpu()] = CheckpointStages(subject, piece).scores(1)[0].double().cpu()
    return scores
