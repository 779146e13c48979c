"""Drops under the protocols of the paper's public code, each in a table of its own."""

from spectrope.lab import ProtocolAblation


class Unrestored(ProtocolAblation, name="ablation-unrestored"):
    """Drops with the fault R9."""

    protocol = "R9"


class AllExamples(ProtocolAblation, name="ablation-all"):
    """Drops with the fault R10."""

    protocol = "R10"


class LatentColumnAblation(ProtocolAblation, name="ablation-latent-columns"):
    """Drops with the fault R12, of latent attention."""

    protocol = "R12"


class Released(ProtocolAblation, name="ablation-unrestored-all"):
    """Drops as the public code measures them."""

    protocol = "released"


class ReleasedLatent(ProtocolAblation, name="ablation-latent-columns-unrestored-all"):
    """Drops as the public code measures them in latent attention."""

    protocol = "released-mla"


RELEASED = (Unrestored, AllExamples, LatentColumnAblation, Released, ReleasedLatent)
