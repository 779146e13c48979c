"""Limits of the library's classes that show in serving modes; they are findings only if asked for."""

from spectrope.checkpoints.audit.records import ServingRecord
from spectrope.checkpoints.audit.serving.chunks import BARE
from spectrope.checkpoints.audit.serving.kernels import SIZE
from spectrope.checkpoints.audit.serving.model import ServedModel

COUNT_ANEW = ("bamba",)  # Classes that forget a cache's tokens unless they are given positions.


def by_default(served: ServedModel, record: ServingRecord) -> ServingRecord:
    """The record of a serving mode that is not required, where a limit of the class is no finding."""
    reason = _limit_in(served, record) if record.verdict == "differs" else ""
    return ServingRecord(record.mode, "cannot tell", (), reason) if reason else record


def _limit_in(served: ServedModel, record: ServingRecord) -> str:
    """The limit of the class that explains what differs in a mode; "" if none does."""
    if record.mode == "left padding" and served.counts_itself:
        return "the class takes no position_ids, so padding on the left shifts its positions"
    if served.config.model_type in COUNT_ANEW and all(one.note == BARE for one in record.findings):
        return "given no positions, the library's class counts from 0 behind a cache; given them, it matches"
    of_size = all(one.effective.endswith(SIZE) for one in record.findings)
    if served.cooled and of_size and record.mode in ("left padding", "packed sequences"):
        return "the class counts tokens of the row for its attention temperature, whatever their positions"
    return ""
