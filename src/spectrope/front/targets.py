"""Resolve a target: a run, a model or a checkpoint."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from spectrope import lab
from spectrope.checkpoints import Tokenizer, is_checkpoint, open_model, open_tokenizer
from spectrope.console import resolve_own
from spectrope.core import ConfigError, Device, choose_device
from spectrope.front.arguments import as_folder
from spectrope.lab import OWN, OWN_TASKS
from spectrope.store import Run, disk_errors, resolve_run

Target = Run | nn.Module | str | Path
AnyTokenizer = Tokenizer | Callable[..., Any]  # Those of transformers are called.


def opened(
    target: object,
    root: str | Path,
    device: Device,
    tokenizer: AnyTokenizer | None,
    *,
    allow_download: bool = False,
) -> tuple[Run | nn.Module, Tokenizer | None]:
    """A run, or a model on a device with its tokenizer, if it has one. A module stays where it is.

    Args:
        target: A run, a model, or what `run_or_checkpoint` takes.
        root: Folder that holds the run folders.
        device: Of a checkpoint.
        tokenizer: The model's; None takes the checkpoint's own, where it is named.
        allow_download: Whether a checkpoint may be fetched from the hub.

    Raises:
        ConfigError: If it is none of these, or a module on another device than the one asked for.
    """
    if isinstance(target, str | Path):
        target = run_or_checkpoint(str(target), as_folder(root), allow_download, specs=())
    if isinstance(target, Run):
        return target, None
    if isinstance(target, nn.Module):
        _require_on(target, device)
        return target, _wrapped(tokenizer)
    if not isinstance(target, str):
        raise ConfigError(
            "a target must be a run, a model, or the name of a run or a checkpoint; got a "
            f"{type(target).__name__}{'; take one of its runs' if isinstance(target, Iterable) else ''}."
        )
    model = open_model(target, allow_download=allow_download).to(choose_device(device))
    return model, _wrapped(tokenizer) or tokenizer_of(target, allow_download)


def _require_on(model: nn.Module, device: Device) -> None:
    """Refuse a device on which a module is not: a caller's module is not moved.

    Raises:
        ConfigError: If it is on another one.
    """
    here = next((one.device.type for one in (*model.parameters(), *model.buffers())), None)
    if device != "auto" and here not in (None, choose_device(device).type):
        raise ConfigError(
            f"device must be auto for a module, which is measured where it is; it is on {here!r}, got "
            f"{device!r}. Move it first: model.to({device!r})."
        )


def _wrapped(tokenizer: object) -> Tokenizer | None:
    """A tokenizer as the library loads it, or wrapped already.

    Raises:
        ConfigError: If it is neither.
    """
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    if not (callable(tokenizer) and hasattr(tokenizer, "mask_token_id")):
        raise ConfigError(f"tokenizer must be one of transformers; got a {type(tokenizer).__name__}.")
    return Tokenizer(tokenizer)


def load_model(
    source: Run | str | Path,
    *,
    root: str | Path = "runs",
    device: Device = "auto",
    allow_download: bool = False,
) -> nn.Module:
    """Load the trained network of a finished run, or the model of a checkpoint, in evaluation mode.

    Args:
        source: A run, or the folder or name of a run or a checkpoint. For a checkpoint, only safetensors
            files are read; `spectrope.checkpoints.open_model` has more options.
        root: Folder of the runs, in which a run can be given by the first characters of its id.
        device: Device of the model.
        allow_download: Whether a checkpoint that is not in the local cache may be downloaded from the Hugging
            Face Hub.

    Raises:
        ConfigError: If there is no such run or checkpoint.
        StoreError: If the run is unfinished, or its weights cannot be read or are those of another network.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> sp.load_model(run).config.n_layers
        3
    """
    place = choose_device(device)
    known, _ = opened(source, root, device, None, allow_download=allow_download)
    return lab.load_model(known, place) if isinstance(known, Run) else known


def tokenizer_of(source: str, allow_download: bool) -> Tokenizer | None:
    """The tokenizer of a checkpoint, if it has one that can be read."""
    try:
        return open_tokenizer(source, allow_download=allow_download)
    except ConfigError:
        return None


def run_or_checkpoint(name: str, root: Path, allow_download: bool, specs: Sequence[str]) -> Run | str:
    """Return the run, or the name itself if it is that of a checkpoint.

    Args:
        name: A folder, the beginning of a run's id, or the id of a model.
        root: Folder that holds the run folders.
        allow_download: Whether an id that is not in the local cache may be that of a model.
        specs: Classes of the run's encoding and task, as file.py:Class, where they come from files, which are
            run.

    Raises:
        ConfigError: If it is neither, or has no encoding or task of the user's own, or another one.
        StoreError: If it is a run that cannot be read, or the beginning of several.
    """
    target = _found(name, root, allow_download)
    take_up(specs, target)
    return target


def take_up(specs: Sequence[str], target: Run | str) -> None:
    """Run the files that a run's encoding and task come from, where any is named.

    Raises:
        ConfigError: If a file cannot be run, or the run has no such encoding or task.
    """
    if not specs:
        return
    config = target.config if isinstance(target, Run) else {}
    names = [*config.get(OWN, {}), *config.get(OWN_TASKS, {})]
    if not names:
        raise ConfigError("--own goes with a run whose encoding or task comes from a file.")
    for spec in specs:
        registry, name = resolve_own(spec)
        if name not in names:
            raise ConfigError(f"--own {spec} is {registry.what} {name!r}; the run has {', '.join(names)}.")


def _found(name: str, root: Path, allow_download: bool) -> Run | str:
    with disk_errors(Path(name), "read"):
        is_folder = Path(name).is_dir()
    if is_folder:
        return name if _of_model(Path(name)) else resolve_run(root, name)
    if root.is_dir() and any(path.name.startswith(name) for path in root.iterdir() if path.is_dir()):
        return resolve_run(root, name)
    if allow_download or is_checkpoint(name):
        return name
    raise ConfigError(
        f"{name!r} is neither a run in {root} nor a checkpoint (a folder, or a model in the local cache); "
        "allow_download=True fetches one."
    )


def _of_model(folder: Path) -> bool:
    """Whether a folder holds a model's weights or its configuration."""
    if any(folder.glob("*.safetensors.index.json")) or any(folder.glob("*.bin")):
        return True
    try:
        config = folder / "config.json"
        return config.is_file() and "model_type" in json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
