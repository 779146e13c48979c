"""No positional encoding."""

from dataclasses import dataclass

from spectrope.encodings.base import Encoding, EncodingConfig


class NoPE(Encoding, name="nope"):
    r"""No positional encoding: logits depend only on content, and only the causal mask provides order:
    :math:`L_{ij} = \langle q_i, k_j\rangle/\sqrt d`.

    References:
        The Impact of Positional Encoding on Length Generalization in Transformers (Kazemnejad et al., 2023).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """NoPE has nothing to configure."""
