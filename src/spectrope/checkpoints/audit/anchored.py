"""A measured encoding as the expected one of a comparison."""

from dataclasses import replace

from spectrope.checkpoints.audit.encoding import LayerEncoding


def anchored(encoding: LayerEncoding) -> LayerEncoding:
    """The encoding with the base that its own frequencies follow, so that slowdowns are told against it."""
    turning = encoding.turning
    if turning is None:
        return encoding
    return replace(encoding, turning=replace(turning, base=turning.fit().base))
