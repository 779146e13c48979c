"""A converted checkpoint against its source."""

from dataclasses import replace

from spectrope.checkpoints.audit.diff import layer_findings, vector_findings
from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.checkpoints.pairs.base import PairRole, Verdict
from spectrope.checkpoints.pairs.compare import layer_pairs, noise_of, orders, other_sizes, rows_of
from spectrope.checkpoints.pairs.member import Member
from spectrope.checkpoints.pairs.records import Obstacle
from spectrope.checkpoints.pairs.rows import EXACT, TO_ADJACENT, TO_HALVES, RowOrder, same_logits

BY_PAIRING = {("adjacent", "halves"): TO_HALVES, ("halves", "adjacent"): TO_ADJACENT}
FOR_SOFTMAX = ("attention scale",)  # What logits for the same input decide.


class Converted(PairRole, name="converted"):
    """A conversion must add the same vectors by position to its embeddings as its source, and give the same
    logits for the same input of each layer.

    Rows of queries and keys may be permuted where the converted model's code pairs coordinates accordingly.
    """

    purpose = "use in place of the source"
    names = ("the source", "the converted model")

    def compare(self, first: Member, second: Member) -> Verdict:
        """Whether a converted model computes what its source does."""
        sizes = [one for one in other_sizes(first, second) if one.what != "vocabulary"]
        verdict = Verdict(sizes, [*self.unknown(first, second)])
        if not sizes:
            verdict.obstacles += [
                Obstacle("embeddings", one.what, one.expected, one.effective, second.name, one.note)
                for one in vector_findings(first.audit, second.audit)
            ]
            for source, converted, place in layer_pairs(first, second):
                self._layer(verdict, source, converted, place, first, second)
        return verdict

    @staticmethod
    def _layer(
        verdict: Verdict,
        source: LayerRecord,
        converted: LayerRecord,
        place: tuple[str, int],
        first: Member,
        second: Member,
    ) -> None:
        """Add what one layer shows to the verdict."""
        where, noise = f"layer {source.name}", noise_of(first, second)
        q, k = orders(first, second, place, EXACT - 4 * noise)
        heads = q.heads if q is not None and q.heads else tuple(range(len(source.heads)))
        same = same_logits(first.calls[place], second.calls[place], heads, noise)
        ordered = replace(converted, heads=tuple(converted.heads[head] for head in heads))
        findings = layer_findings(source, ordered, first.audit.length, noise)
        repaired = _repaired(source, converted, q, k)
        obstacles = [
            Obstacle(where, one.what, one.expected, one.effective, second.name, one.note)
            for one in findings
            if not (one.what == "pairing" and (repaired or same)) and not (same and one.what in FOR_SOFTMAX)
        ]
        if same:
            if repaired and q is not None:
                order = q.name(source.effective.turning)
                verdict.notes.append(f"{where}: rows of queries and keys {order}, as its code pairs them.")
        elif q is None or k is None:
            told = "those of the source", "others for the same input"
            obstacles.append(Obstacle(where, "queries and keys", *told, second.name))
        elif not repaired:
            for side, order in (("queries", q), ("keys", k)):
                obstacles += rows_of(order, side, source, second.name)
            if any(one.what == "pairing" for one in obstacles) and q.rows_in_order and k.rows_in_order:
                verdict.notes.append(f"{where}: rows were not permuted for the other pairing.")
        verdict.obstacles += obstacles


def _repaired(source: LayerRecord, converted: LayerRecord, q: RowOrder | None, k: RowOrder | None) -> bool:
    """Whether rows were permuted on both sides as the change of the pairing asks."""
    a, b = source.effective.turning, converted.effective.turning
    if a is None or b is None or q is None or k is None or not (q.heads_in_order and k.heads_in_order):
        return False
    wanted = BY_PAIRING.get((str(a.pairing), str(b.pairing)))
    return wanted is not None and q.name(a) == wanted == k.name(a)
