"""Compare models for a purpose."""

from collections.abc import Iterator, Sequence

from torch import nn

from spectrope.checkpoints.audit.run import audit, default_length
from spectrope.checkpoints.audit.text import beyond_length
from spectrope.checkpoints.pairs.base import ROLES
from spectrope.checkpoints.pairs.member import Member
from spectrope.checkpoints.pairs.records import PairAudit
from spectrope.core import ConfigError, Watch

OTHERS = "values, output projections, norms, feed-forward layers, experts and heads"


def compatible(
    first: nn.Module,
    *others: nn.Module,
    role: str,
    names: Sequence[str] = (),
    length: int | None = None,
    watch: Watch | None = None,
) -> PairAudit:
    """Decide whether models fit together (yes, no, or cannot tell), with reasons.

    Args:
        first: The target of a draft, the base of an adapter, the source of a conversion, a model before
            fine-tuning, or the first input of a merge.
        others: The other model; of a merge, the other inputs and the result.
        role: Relation of the others to the first: "draft", "adapter", "merge", "converted" or "finetuned".
        names: Names of the models in the answer (default: their roles).
        length: Positions of the audits; None takes 512, or as many as all models take.
        watch: Called with the numbers of layers measured and in all; None shows them.

    Raises:
        UnknownNameError: If there is no such role.
        ConfigError: If the role compares two models and there are more, or an audit refuses one of them.

    Example:
        >>> import spectrope as sp
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
        >>> def llama(base):
        ...     rope = {"rope_type": "default", "rope_theta": base}
        ...     config = LlamaConfig(vocab_size=50, num_attention_heads=4, rope_parameters=rope, **sizes)
        ...     return LlamaForCausalLM(config)
        >>> pair = sp.compatible(llama(5e5), llama(1e4), role="draft", length=64, watch=sp.unwatched)
        >>> pair.answer
        'no'
        >>> print(pair.reasons[0])
        layer 0: SPE101 base: 500000 in the target, 10000 in the draft
    """
    chosen = ROLES[role]()
    models = (first, *others)
    if not others or (len(models) > 2 and not chosen.many):
        raise ConfigError(f"role {chosen.kind!r} compares two models; got {len(models)}.")
    length = min(map(default_length, models)) if length is None else length
    called = tuple(names) or _names(chosen.names, len(models))
    members = [
        Member(name, model, audit(model, length=length, serving_modes=False, watch=watch))
        for name, model in zip(called, models, strict=True)
    ]
    verdicts = [chosen.compare(members[0], other) for other in members[1:]]
    unclear = [*(one for verdict in verdicts for one in verdict.unclear), *_unread(members)]
    notes = [*(one for verdict in verdicts for one in verdict.notes), *_uncompared(members)]
    return PairAudit(
        role=chosen.kind,
        purpose=chosen.purpose,
        names=called,
        audits=tuple(member.audit for member in members),
        obstacles=tuple(one for verdict in verdicts for one in verdict.obstacles),
        unclear=tuple(dict.fromkeys(unclear)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _unread(members: Sequence[Member]) -> Iterator[str]:
    """Attention that an audit does not read, so that it could be anything."""
    for member in members:
        for module in member.audit.unread:
            yield f"{module} of {member.name} has attention of a form that is not read"


def _uncompared(members: Sequence[Member]) -> Iterator[str]:
    """Other weights, blocks without softmax attention, layers that no role compares, and far positions."""
    yield f"Not compared: {OTHERS}."
    audits = [member.audit for member in members]
    blocks = [name for audit in audits for name in audit.without]
    layers = [one for audit in audits for one in (*audit.indexers, *audit.decays, *audit.vision)]
    names = dict.fromkeys((*blocks, *(f"layer {one.name}" for one in layers)))
    if names:
        yield f"Not compared: {', '.join(names)}."
    beyond = dict.fromkeys(one for audit in audits for one in beyond_length(audit))
    yield f"Not compared: {'; '.join(beyond)}."


def _names(roles: tuple[str, str], n: int) -> tuple[str, ...]:
    """What n models are called."""
    first, other = roles
    return (first, other) if n == 2 else (first, *(f"{other} ({i})" for i in range(1, n)))
