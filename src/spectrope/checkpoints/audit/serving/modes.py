"""Which serving modes a model has, and a record of each."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial

from spectrope.checkpoints.adapters import POOLS
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.records import ServingRecord
from spectrope.checkpoints.audit.serving.beams import beams
from spectrope.checkpoints.audit.serving.chunks import chunked, takes_chunks
from spectrope.checkpoints.audit.serving.decoding import decoded, decoded_from_static, has_static_cache
from spectrope.checkpoints.audit.serving.embedded import EMBEDDED, embedded, takes_embeddings
from spectrope.checkpoints.audit.serving.kernels import Refused
from spectrope.checkpoints.audit.serving.long import chooses_places, far_behind, takes_long_cache
from spectrope.checkpoints.audit.serving.model import ServedModel
from spectrope.checkpoints.audit.serving.packing import packed
from spectrope.checkpoints.audit.serving.padding import BEHIND_PADDING, BESIDE_DECODED, FROM_STATIC, padded
from spectrope.checkpoints.audit.serving.specials import special_tokens, with_specials
from spectrope.checkpoints.audit.text import BEAMS, KEYS_ALONE, LONG

STATIC_CACHE = "static cache"
DECODING = "cached decoding"
NOT_DECODED = ServingRecord(
    "decoding from caches and left padding", "cannot tell", (), "the class has no generate"
)
Mode = Callable[[ServedModel], list[Discrepancy]]


def serving_records(served: ServedModel) -> Iterator[ServingRecord]:
    """A record per serving mode of the model."""
    alone: dict[str, set[str]] = {}
    for name, mode in _modes(served).items():
        try:
            if name == BEAMS and alone.get(DECODING):
                raise Refused("tokens that are decoded without it differ already")
            outcome = _record(name, mode(served))
        except Refused as refusal:
            outcome = ServingRecord(name, "cannot tell", (), str(refusal))
        alone[name] = {*map(_respect, outcome.findings)}
        yield _without(outcome, alone)


def not_decoded(served: ServedModel) -> tuple[ServingRecord, ...]:
    """A record of decoding, if a model whose queries do not see the future takes a cache, but has no loop."""
    decodes = served.causal and "past_key_values" in served.arguments
    return (NOT_DECODED,) if decodes and not hasattr(served.model, "generate") else ()


def _serves(served: ServedModel) -> bool:
    """Whether tokens are decoded one by one."""
    return served.config.is_encoder_decoder or served.causal


def _modes(served: ServedModel) -> dict[str, Mode]:
    """The serving modes of the model, by name."""
    if served.config.model_type in POOLS:
        return {"right padding": _pooling}
    modes: dict[str, Mode] = {}
    two_stacks, serves = served.config.is_encoder_decoder, _serves(served)
    if serves and hasattr(served.model, "generate"):
        if "past_key_values" in served.arguments:
            modes[DECODING] = decoded
            if has_static_cache(served):
                modes[STATIC_CACHE] = decoded_from_static
        if not two_stacks and takes_long_cache(served):
            modes[f"{LONG} {served.past}{'' if chooses_places(served) else KEYS_ALONE}"] = far_behind
        if not two_stacks:
            if DECODING in modes:
                modes[BEAMS] = beams
            modes["left padding"] = partial(padded, tokens=slice(served.padding, served.prompt))
    if serves and not two_stacks and takes_chunks(served):
        modes["chunked prefill"] = chunked
    modes["right padding"] = partial(padded, tokens=slice(0, served.prompt - served.padding))
    if "position_ids" in served.arguments:
        modes["packed sequences"] = packed
    if takes_embeddings(served):
        modes[EMBEDDED] = embedded
    if special_tokens(served):
        modes["special tokens"] = with_specials
    return modes


def _pooling(_: ServedModel) -> list[Discrepancy]:
    raise Refused("its layers pool positions, of which padding would change the number")


def _record(mode: str, findings: list[Discrepancy]) -> ServingRecord:
    """The record with one finding per respect, the first."""
    first = {finding.what: finding for finding in reversed(findings)}
    kept = tuple(finding for finding in findings if first[finding.what] is finding)
    return ServingRecord(mode, "differs" if kept else "matches", kept)


def _without(record: ServingRecord, alone: Mapping[str, Collection[str]]) -> ServingRecord:
    """A record without what differs in the same respects where tokens are decoded without any padding."""

    def is_told(one: Discrepancy) -> bool:
        if one.note.endswith(FROM_STATIC):
            return _respect(one) in alone.get(STATIC_CACHE, ())
        return one.note in (BEHIND_PADDING, BESIDE_DECODED) and _respect(one) in alone.get(DECODING, ())

    kept = tuple(one for one in record.findings if not is_told(one))
    if kept == record.findings:
        return record
    return replace(record, verdict="differs" if kept else "matches", findings=kept)


def _respect(finding: Discrepancy) -> str:
    """What differs, of whichever token."""
    return finding.what.partition(" of token ")[0]
