"""A draft model for speculative decoding."""

from collections.abc import Iterator

from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.checkpoints.pairs.base import PairRole, Verdict
from spectrope.checkpoints.pairs.compare import noise_of, other_rotation
from spectrope.checkpoints.pairs.member import Member
from spectrope.checkpoints.pairs.records import Obstacle

LIMITS = (
    "a draft that was trained by itself under another encoding still decodes exactly, and agrees less "
    "often with its target the farther back the text reaches"
)


class Draft(PairRole, name="draft"):
    """A draft fits its target if each of its layers applies an encoding that the target also applies.
    Families, bases and scalings are compared; widths of heads may differ. The numbers of token ids must be
    equal, and the draft must accept at least as many positions as the target.
    """

    purpose = "speculative decoding"
    names = ("the target", "the draft")

    def compare(self, first: Member, second: Member) -> Verdict:
        """Whether a draft fits its target."""
        obstacles = [*self._sizes(first, second), *self._terms(first, second)]
        unclear = [*self.unknown(first, second)]
        if not unclear:
            obstacles += [one for layer in second.audit.layers for one in self._layer(layer, first, second)]
        notes = [f"Note: {LIMITS}."] if any(one.where != "sizes" for one in obstacles) else []
        return Verdict(obstacles, unclear, notes)

    @staticmethod
    def _sizes(target: Member, draft: Member) -> Iterator[Obstacle]:
        if target.vocabulary != draft.vocabulary:
            yield Obstacle("sizes", "vocabulary", str(target.vocabulary), str(draft.vocabulary), draft.name)
        if target.trained and draft.trained and draft.trained < target.trained:
            yield Obstacle("sizes", "trained length", str(target.trained), str(draft.trained), draft.name)

    @staticmethod
    def _terms(target: Member, draft: Member) -> Iterator[Obstacle]:
        """Where one of the models adds vectors by position to its embeddings, and the other does not."""
        adds = [any(one.term is not None for one in each.audit.absolutes) for each in (target, draft)]
        if adds[0] != adds[1]:
            told = ["vectors by position" if one else "none" for one in adds]
            yield Obstacle("embeddings", "absolute term", told[0], told[1], draft.name)

    @staticmethod
    def _layer(layer: LayerRecord, target: Member, draft: Member) -> list[Obstacle]:
        """Where a layer of the draft differs from that layer of the target which is most like it."""
        noise, length = noise_of(target, draft), target.audit.length
        found = [other_rotation(one.effective, layer.effective, length, noise) for one in target.audit.layers]
        return [
            Obstacle(f"layer {layer.name}", one.what, one.expected, one.effective, draft.name, one.note)
            for one in min(found, key=len)
        ]
