"""Fields of a configuration that declare something of attention and that nothing applies."""

import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from torch import nn

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.declaration import layer_type
from spectrope.checkpoints.audit.declared_rope import rope_parameters, scaling_kind
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.norms import declared_norms
from spectrope.checkpoints.audit.records import IgnoredRecord, LayerRecord

# Fields that no other part of the audit reads for every class, and values under which they declare nothing
# beyond what a class does by itself. None, False, 0 and "" never do.
FIELDS: dict[str, tuple[Any, ...]] = {
    "attention_chunk_size": (),
    "attention_multiplier": (),
    "attn_temperature_tuning": (),
    "clip_qkv": (),
    "dual_chunk_attention_config": (),
    "has_relative_attention_bias": (),
    "position_embedding_type": (
        *("absolute", "learned", "learned_absolute", "nope", "rope", "rotary", "rotary_embedding"),
    ),
    "relative_attention": (),
    "rope_ratio": (1,),
    "rotary_emb_scale_base": (),
    "use_alibi": (),
    "use_dynamic_ntk": (),
    "use_logn_attn": (),
}
SAME = 1e-3  # Relative difference of two factors that are taken for one.
OF_NORMS = ("qk_layernorm", "qk_norm", "use_qk_norm")  # Which say nothing new of a class that has such norms.


def unread_fields(
    model: nn.Module, declaration: Declaration, records: Sequence[LayerRecord]
) -> tuple[IgnoredRecord, ...]:
    """A record per field that declares something, and that neither the model's code nor its configuration's
    class names; and per factor of a scaling whose kind is not stated, so that nothing is scaled.

    Args:
        model: Without its head.
        declaration: Its configuration.
        records: Of its layers, which may apply what a field says although no code reads it.
    """
    return (*_unnamed_fields(model, declaration, records), *_factors_alone(declaration, records))


def _unnamed_fields(
    model: nn.Module, declaration: Declaration, records: Sequence[LayerRecord]
) -> tuple[IgnoredRecord, ...]:
    """A record per field that no code names."""
    known = FIELDS | dict.fromkeys(OF_NORMS, ())
    stated = {name: value for name in known if (value := declaration.get(name)) not in known[name]}
    stated = {name: value for name, value in stated.items() if value and value != "none"}
    applied = _applied(model, stated, records) if stated else set()
    stated = {name: value for name, value in stated.items() if name not in applied}
    if not stated or (words := _words(model)) is None:
        return ()
    note = f"the code of {type(model).__name__} does not name it"
    found = {
        name: Discrepancy(f"field {name}", str(value), "nothing", note)
        for name, value in stated.items()
        if name not in words
    }
    return tuple(IgnoredRecord(name, "differs", (finding,)) for name, finding in found.items())


def _factors_alone(declaration: Declaration, records: Sequence[LayerRecord]) -> Iterator[IgnoredRecord]:
    """A record per factor of a scaling that has no kind, unless layers are seen to be scaled all the same."""
    if any(finding.code == "SPE102" for one in records for finding in one.findings):
        return
    factors = [
        factor_alone(declaration.of(one.stack).at(one.layer), one.layer)
        for one in records
        if one.declared.turning is not None
    ]
    note = "its rope_type is missing or 'default', which scales nothing"
    for name, factor in dict(filter(None, factors)).items():
        yield IgnoredRecord(name, "differs", (Discrepancy(f"field {name}", str(factor), "nothing", note),))


def factor_alone(declaration: Declaration, layer: int) -> tuple[str, Any] | None:
    """The field of a layer's factor other than 1 and the factor, if no kind of scaling is stated for it."""
    parameters = rope_parameters(declaration, layer_type(declaration, layer))
    factor = parameters.get("factor")
    if not factor or factor == 1 or scaling_kind(parameters) != "default":
        return None
    return f"{_owner(declaration)}.factor", factor


def _owner(declaration: Declaration) -> str:
    """The field that holds the scaling: of the old layout where the file has no other."""
    old = declaration.file.get("rope_scaling") and not declaration.file.get("rope_parameters")
    return "rope_scaling" if old else "rope_parameters"


def _applied(model: nn.Module, stated: Mapping[str, Any], records: Sequence[LayerRecord]) -> set[str]:
    """Those of the stated fields that say what the layers do anyway."""
    kinds = {one.effective.kind for one in records}
    named = {"alibi": "linear bias", "relative": "bucketed bias"}.get(
        str(stated.get("position_embedding_type"))
    )
    scale = stated.get("attention_multiplier")
    as_stated = {
        "use_alibi": kinds == {"linear bias"},
        "position_embedding_type": kinds == {named},
        "attention_multiplier": isinstance(scale, int | float)
        and all(math.isclose(one.scale, scale, rel_tol=SAME) for one in records),
    }
    of_norms = OF_NORMS if declared_norms(model) else ()
    return {*of_norms, *(name for name, applies in as_stated.items() if applies)}


def _words(model: nn.Module) -> set[str] | None:
    """Every word in the files that define the model and its configuration; None where one cannot be read."""
    words: set[str] = set()
    try:
        for file in dict.fromkeys(_files(model)):
            words.update(re.findall(r"\w+", inspect.getsource(file)))
    except (OSError, TypeError):
        return None
    return words


def _files(model: nn.Module) -> Iterator[ModuleType]:
    """Python modules of the classes of a model, of its parts and of its configurations, and of their bases.

    Those that all models of a library share name fields that only some of them read, and are left out.
    """
    config: Any = model.config
    parts = {type(part) for part in model.modules()}
    configs = {type(one) for one in (config, config.get_text_config())}
    for kind in sorted(parts | configs, key=lambda one: (one.__module__, one.__qualname__)):
        for base in kind.__mro__:
            file, library = inspect.getmodule(base), base.__module__.partition(".")[0]
            shared = library == "transformers" and ".models." not in base.__module__
            if file is not None and library not in ("builtins", "torch") and not shared:
                yield file
