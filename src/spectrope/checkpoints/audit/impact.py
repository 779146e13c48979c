"""How much a finding changes what a model predicts."""

from dataclasses import dataclass

HARMLESS = 1e-10  # Divergence in nats that is left to rounding.


@dataclass(frozen=True)
class Impact:
    """Effect of a finding, relative to the same model with the declared encoding.

    Args:
        divergence: Mean Kullback-Leibler divergence of the model's next-token distributions from those of the
            corrected model, in nats; None if it was not computed.
        loss: Mean loss minus that of the corrected model, in nats per token; None if the model does not
            predict next tokens.
        lengths: Numbers of tokens read, ascending.
        by_length: Mean divergence over tokens from each length before, or the fourth token, to this one.
        layers: Number of layers, or of tables of positions, in which the finding was corrected together.
        reason: Why nothing was computed; "" if it was.
        rounding: Divergence that can be due to rounding.
        on_text: Whether the tokens are those of a given text; otherwise they are random and repeated once.
    """

    divergence: float | None = None
    loss: float | None = None
    lengths: tuple[int, ...] = ()
    by_length: tuple[float, ...] = ()
    layers: int = 0
    reason: str = ""
    rounding: float = HARMLESS
    on_text: bool = False

    @property
    def harmless(self) -> bool:
        """Whether predictions are the same up to rounding."""
        return self.divergence is not None and max((self.divergence, *self.by_length)) <= self.rounding

    @property
    def size(self) -> float:
        """For sorting: the divergence, below every one that was computed where it was not."""
        return -1.0 if self.divergence is None else self.divergence

    def __str__(self) -> str:
        if self.divergence is None:
            return f"impact not computed: {self.reason}"
        if self.harmless:
            return f"harmless: predictions are the same up to rounding over {self.lengths[-1]} tokens"
        tokens = "tokens of the text" if self.on_text else "tokens"
        where = f"{self.by_length[0]:.2g} nats over the first {self.lengths[0]} {tokens}"
        if len(self.lengths) > 1:
            where += f", {self.by_length[-1]:.2g} over tokens {self.lengths[-2]} to {self.lengths[-1] - 1}"
        return f"mean next-token divergence {where}" + (
            "" if self.loss is None else f"; loss {self.loss:+.2g}"
        )


IGNORED = Impact(reason="no code is known that would apply it")
NOT_OF_A_LAYER = Impact(reason="it does not belong to an attention layer")
IN_LINEAR_ATTENTION = Impact(reason="no other decay can be put into a layer of linear attention")
IN_INDEXER = Impact(reason="no other choice of keys can be put into sparse attention")
IN_VISION = Impact(reason="no pictures are given, on which a vision tower could be compared")
UNMEASURED = Impact(reason="the audit measured none")
