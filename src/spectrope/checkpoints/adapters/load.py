"""Load checkpoints from disk: safetensors only, no remote code, no network, unless allowed."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from spectrope.checkpoints.adapters.checks import check_folder, check_sizes
from spectrope.checkpoints.adapters.loaded import check_weights_of
from spectrope.checkpoints.adapters.mapped import Mapping, give_back_after_layers, large_files
from spectrope.checkpoints.adapters.slices import (
    INDEX,
    LAYER,
    Chosen,
    chosen_layers,
    cut_config,
    read_layers,
    renumber,
)
from spectrope.checkpoints.adapters.structure import declared_fields
from spectrope.checkpoints.adapters.towers import other_towers, towers
from spectrope.core import ConfigError, SpectropeError, UnsupportedError

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


def open_model(
    source: str | Path,
    *,
    allow_download: bool = False,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    dtype: Dtype = "auto",
    layers: slice | None = None,
    by_layer: bool = False,
) -> nn.Module:
    """Open the model of a checkpoint, in evaluation mode on the CPU.

    Args:
        source: A local folder, or the id of a model that is in the local cache.
        allow_download: Whether an id may be fetched from the hub.
        trust_remote_code: Whether code that comes with the checkpoint may run.
        allow_pickle: Whether weights may be unpickled, which can run code, where there are no safetensors.
        dtype: Of the weights; "auto" keeps the checkpoint's.
        layers: Layers to load, None for all. Weights of other layers are not read, and loaded layers keep
            their numbers. Such a model is only suitable for measuring single layers.
        by_layer: Whether each layer of a large model frees the pages of its weights once it has run, as
            far as they are not converted: what runs it again reads them from their safetensors again. Changes
            of such weights in place are lost.

    Raises:
        ConfigError: If there is no such checkpoint, it has no configuration that can be read, lacks weights
            other than those of a head or a pooler, or has none of the layers.
        UnsupportedError: If its weights are pickled, it needs code of its own, transformers is missing, or a
            layer shares weights with one that is left out.
    """
    transformers = _library()
    folder = Path(source)
    if not str(source).strip():
        raise ConfigError("a checkpoint is a folder or the id of a model; got an empty name.")
    if _is_file(folder):
        way = "give the folder of a checkpoint"
        if folder.suffix == ".gguf":
            way = (
                "a GGUF file is read and not run, and `spectrope audit` alone takes it; keep the output of "
                "its --json, or give the folder that the file was converted from"
            )
        raise ConfigError(f"{folder} is a file; {way}.")
    options = {"local_files_only": not allow_download, "trust_remote_code": trust_remote_code}
    with _quiet(transformers), _explained(str(source), allow_download):
        folder = folder if folder.is_dir() else _cached(transformers, str(source), not allow_download)
        if folder is not None:
            check_folder(folder, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)
        config = transformers.AutoConfig.from_pretrained(str(source), **options)
        if folder is not None:
            check_sizes(folder, config)
        cls = _model_class(transformers, config)
        if layers is not None:
            chosen = chosen_layers(config, layers, _beside_text(cls, config))
            return _sliced(cls, config, str(source), chosen, dtype, options)
        safe = None if allow_pickle else True
        model, loaded = cls.from_pretrained(
            str(source),
            config=config,
            dtype=dtype,
            use_safetensors=safe,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    mapping = Mapping.of(large_files(folder)) if by_layer and folder is not None else Mapping()
    check_weights_of(model, source, loaded, lambda weight: mapping.give_back([weight.data]))
    give_back_after_layers(model, mapping)
    _remember_source(model, source)
    return model.eval()


def _remember_source(model: nn.Module, source: str | Path) -> None:
    """Let a model and its body know the file that says what they should apply."""
    remembering: Any
    for remembering in (model, getattr(model, "base_model", model)):
        remembering.opened_from = str(source)


def read_declaration(folder: Path) -> dict[str, Any]:
    """The configuration of a checkpoint that is not loaded, as `declared_config` gives that of a model.

    Raises:
        ConfigError: If the folder holds no checkpoint, or its configuration cannot be read.
        UnsupportedError: If its weights are pickled or quantised, it needs code of its own, or transformers
            is missing.
    """
    transformers = _library()
    with _quiet(transformers), _explained(str(folder), allow_download=False):
        check_folder(folder, allow_pickle=False, trust_remote_code=False)
        options = {"local_files_only": True, "trust_remote_code": False}
        config = transformers.AutoConfig.from_pretrained(str(folder), **options)
    return declared_fields(config, str(folder))


def _sliced(
    cls: Any, config: Any, source: str, chosen: Chosen, dtype: Dtype, options: dict[str, Any]
) -> nn.Module:
    """The model of the chosen layers alone, which remembers the configuration of the whole."""
    where = {"local_files_only": options["local_files_only"]}
    tensors = read_layers(source, chosen, **where)
    cut = cut_config(config, chosen)
    model, loaded = cls.from_pretrained(
        None,
        config=cut,
        state_dict=tensors,
        dtype=dtype,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    if missing := sorted(name for name in loaded["missing_keys"] if LAYER.match(name)):
        raise UnsupportedError(
            f"these layers of {source} need weights that are kept in other layers: "
            f"{missing[0]}; take layers from 0 on."
        )
    check_weights_of(model, source, loaded)
    renumber(model, chosen, config)
    config._name_or_path = model.config._name_or_path = source
    model.whole_config = config
    _remember_source(model, source)
    return model.eval()


def _beside_text(cls: Any, config: Any) -> list[str]:
    """Dotted names of the parts of a model for pictures or sounds."""
    if config.get_text_config() is config:
        return []
    with torch.device("meta"):
        skeleton = cls(config)
    return [*(one.name for one in towers(skeleton)), *other_towers(skeleton)]


def drawn_weights(model: nn.Module) -> tuple[str, ...]:
    """Names of weights of a head or a pooler that a model's checkpoint lacks, so that they are random."""
    return getattr(model, "drawn_weights", ())


def require_own_head(model: nn.Module) -> None:
    """Refuse a model whose predictions of tokens depend on weights that its checkpoint lacks.

    Raises:
        UnsupportedError: If it predicts no tokens, or by a random head.
    """
    name = type(model).__name__
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if head is None:
        raise UnsupportedError(f"{name} has no head that predicts tokens.")
    place = next(name for name, module in model.named_modules() if module is head)
    beside = place.rpartition(".")[0]
    drawn = [one for one in drawn_weights(model) if one.startswith(beside) and ".pooler." not in f".{one}"]
    if drawn:
        raise UnsupportedError(
            f"the checkpoint of {name} lacks {drawn[0]}, so that it would predict by a random head; save it "
            "with its head."
        )


def ignored_weights(model: nn.Module) -> tuple[str, ...]:
    """Names of weights in a model's checkpoint that its class did not load; none if it was built."""
    return getattr(model, "ignored_weights", ())


def _library() -> Any:
    try:
        import transformers
    except ImportError:
        raise UnsupportedError(
            "checkpoints need transformers, which is not installed; pip install 'spectrope[hf]'."
        ) from None
    return transformers


def _model_class(transformers: Any, config: Any) -> Any:
    """The class that the checkpoint names, where the library has it."""
    names = getattr(config, "architectures", None) or ()
    return next(
        (getattr(transformers, name) for name in names if hasattr(transformers, name)), transformers.AutoModel
    )


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without the library's progress bars and reports, whose matter is said here in one line."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _cached(transformers: Any, source: str, local: bool) -> Path | None:
    """The folder in the local cache that holds a model, with its index of weights; None if it has none."""
    find, options = transformers.utils.hub.cached_file, {"local_files_only": local}
    options["_raise_exceptions_for_missing_entries"] = False
    config = find(source, "config.json", **options)
    if config is None or find(source, INDEX, **options) is None:
        return None  # single files have no index that could lead elsewhere
    return Path(config).parent


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # as for a name that is too long
        raise ConfigError(f"{path} is neither a folder nor the id of a model: {error.strerror}.") from None


@contextlib.contextmanager
def _explained(source: str, allow_download: bool) -> Iterator[None]:
    """The library's complaints as errors of one line with the way out."""
    try:
        yield
    except SpectropeError:
        raise
    except OSError as error:
        if Path(source).is_dir() or allow_download:
            raise ConfigError(f"{source} cannot be loaded: {_reason(error)}") from None
        raise ConfigError(
            f"{source} is neither a folder nor in the local cache; allow_download=True downloads it from "
            f"the hub."
        ) from None
    except ValueError as error:
        if "trust_remote_code" in str(error):
            raise UnsupportedError(
                f"{source} needs code that comes with it, which is not executed by default; read it first, "
                f"then pass trust_remote_code=True."
            ) from None
        raise ConfigError(f"{source} cannot be loaded: {_reason(error)}") from None
    except KeyError as error:
        raise ConfigError(f"{source} cannot be loaded: {_missing(error)}") from error
    except Exception as error:  # what broken configurations and files raise inside the library is of any kind
        what = f"{type(error).__name__}: {_reason(error)}"
        if type(error).__name__.startswith("StrictDataclass"):  # Which wraps what the field is refused for.
            what = _reason(error).rpartition("Error: ")[2]
        raise ConfigError(f"{source} cannot be loaded: {what}") from error


def _missing(error: KeyError) -> str:
    """What a name stands for that the library looked up in vain, such as a kind of rotary scaling."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    name = error.args[0] if error.args else ""
    if error.__traceback__ is None or not _looked_up_rope(error):
        return f"{type(error).__name__}: {_reason(error)}"
    hints = {"su": "; it is called 'longrope' now", "mrope": "; it is 'default' with mrope_section now"}
    known = ", ".join(sorted({"default", *ROPE_INIT_FUNCTIONS}))
    return f"rope_type {name!r} is not known to transformers{hints.get(name, '')}; known: {known}."


def _looked_up_rope(error: KeyError) -> bool:
    """Whether a rotary module looked for its kind of scaling."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and "Rotary" in str(
        trace.tb_frame.f_locals.get("self", type(None)).__class__.__name__
    )


def _reason(error: Exception) -> str:
    """The first line of a message, with those after it as long as one announces the next."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    n = next((i for i, line in enumerate(lines, 1) if not line.endswith(":")), len(lines))
    return " ".join(lines[:n])
