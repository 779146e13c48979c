"""A checkpoint before and after fine-tuning."""

from spectrope.checkpoints.pairs.base import PairRole, Verdict
from spectrope.checkpoints.pairs.compare import (
    compared_rows,
    layer_pairs,
    other_encodings,
    other_sizes,
)
from spectrope.checkpoints.pairs.member import Member
from spectrope.checkpoints.pairs.rows import at_start


class Finetuned(PairRole, name="finetuned"):
    """Fine-tuning may change weights; sizes, encodings and the order of rows must stay."""

    purpose = "use in place of the original"
    names = ("the original", "the fine-tuned model")

    def compare(self, first: Member, second: Member) -> Verdict:
        """Whether the encoding survived fine-tuning, and how far queries and keys moved."""
        sizes = [one for one in other_sizes(first, second) if one.what != "vocabulary"]
        if sizes:
            return Verdict(sizes)
        moved = [self._moved(first, second, place) for _, _, place in layer_pairs(first, second)]
        note = f"Queries and keys moved by up to {100 * max(moved):.3g} % of their norm for the same input."
        rows, untold = compared_rows(first, second)
        unclear = [*self.unknown(first, second), *self.unclear_rows(untold)]
        return Verdict([*other_encodings(first, second), *rows], unclear, [note])

    def unclear_rows(self, untold: list[str]) -> list[str]:
        """Layers whose order of rows is not shown and matters."""
        return untold

    @staticmethod
    def _moved(first: Member, second: Member, place: tuple[str, int]) -> float:
        """Relative change of the queries or keys of a layer, whichever moved farther."""
        sides = zip(at_start(first.calls[place]), at_start(second.calls[place]), strict=True)
        return max(((a - b).double().norm() / a.double().norm().clamp(min=1e-300)).item() for a, b in sides)
