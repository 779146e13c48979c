"""Fields of a configuration that declare something of attention and that the model's code does not name."""

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from torch import nn

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.norms import declared_norms
from spectrope.checkpoints.audit.records import IgnoredRecord

# Fields that no other part of the audit reads for every class, and values under which they declare nothing
# beyond what a class does by itself. None, False, 0 and "" never do.
FIELDS: dict[str, tuple[Any, ...]] = {
    "attention_chunk_size": (),
    "attention_multiplier": (),
    "attn_temperature_tuning": (),
    "clip_qkv": (),
    "dual_chunk_attention_config": (),
    "has_relative_attention_bias": (),
    "position_embedding_type": ("absolute", "learned", "none", "nope", "rope", "rotary"),
    "relative_attention": (),
    "rope_ratio": (1,),
    "rotary_emb_scale_base": (),
    "use_alibi": (),
    "use_dynamic_ntk": (),
    "use_logn_attn": (),
}
OF_NORMS = ("qk_layernorm", "qk_norm", "use_qk_norm")  # Which say nothing new of a class that has such norms.


def unread_fields(model: nn.Module, declaration: Declaration) -> tuple[IgnoredRecord, ...]:
    """A record per field that declares something, and that neither the model's code nor its configuration's
    class names.

    Args:
        model: Without its head.
        declaration: Its configuration.
    """
    stated = {name: value for name in FIELDS if (value := declaration.get(name)) not in FIELDS[name]}
    stated |= {name: value for name in OF_NORMS if (value := declaration.get(name))}
    stated = {name: value for name, value in stated.items() if value}
    if stated.keys() & {*OF_NORMS} and declared_norms(model):
        stated = {name: value for name, value in stated.items() if name not in OF_NORMS}
    if not stated or (words := _words(model)) is None:
        return ()
    note = f"the code of {type(model).__name__} does not name it"
    found = {
        name: Discrepancy(f"field {name}", str(value), "nothing", note)
        for name, value in stated.items()
        if name not in words
    }
    return tuple(IgnoredRecord(name, "differs", (finding,)) for name, finding in found.items())


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
