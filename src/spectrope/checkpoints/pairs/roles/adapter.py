"""An adapter, merged into its base."""

from spectrope.checkpoints.pairs.member import Member
from spectrope.checkpoints.pairs.roles.finetuned import Finetuned


class Adapter(Finetuned, name="adapter"):
    """The base with the adapter must apply the base's encoding, and so must the base that it was trained on.

    The second model is the base with the adapter merged into it. Where the adapter names its base and that is
    on this machine, it is compared as a third.
    """

    purpose = "use with its base"
    names = ("the base", "the base with the adapter")
    many = True

    def unclear(self, first: Member, second: Member) -> list[str]:
        """What could not be determined; an adapter adds to the rows of its base, whose order it keeps."""
        return [*self.unknown(first, second)]
