"""An adapter, merged into its base."""

from spectrope.checkpoints.pairs.roles.finetuned import Finetuned


class Adapter(Finetuned, name="adapter"):
    """The base with the adapter must apply the base's encoding, and so must the base that it was trained on.

    The second model is the base with the adapter merged into it. Where the adapter names its base and that is
    on this machine, it is compared as a third.
    """

    purpose = "use with its base"
    names = ("the base", "the base with the adapter")
    many = True

    def unclear_rows(self, untold: list[str]) -> list[str]:
        """None: an adapter adds to the rows of its base, and so keeps their order."""
        return []
