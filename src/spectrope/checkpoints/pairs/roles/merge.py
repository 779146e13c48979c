"""Models whose weights are to be merged, and the result of a merge."""

from spectrope.checkpoints.pairs.base import PairRole, Verdict
from spectrope.checkpoints.pairs.compare import compared_rows, other_encodings, other_sizes
from spectrope.checkpoints.pairs.member import Member


class Merge(PairRole, name="merge"):
    """Weights can be merged if sizes, encodings and the order of rows of queries and keys are the same.

    The order of rows is determined from the outputs of the layers for the same input, if the weights are
    similar enough.
    """

    purpose = "merging"
    names = ("the first input", "another input")
    many = True

    def compare(self, first: Member, second: Member) -> Verdict:
        """Whether another model, or the result, fits the first."""
        obstacles = [*other_sizes(first, second)]
        unclear = [*self.unknown(first, second)]
        if not obstacles:
            rows, untold = compared_rows(first, second)
            obstacles += [*other_encodings(first, second), *rows]
            unclear += untold
        return Verdict(obstacles, unclear)
