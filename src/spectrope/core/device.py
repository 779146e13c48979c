"""Devices, precision of matrix products, and timing."""

import contextlib
import platform
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import TypeVar, get_args

import torch
from torch import Tensor

from spectrope.core.choices import Device, Precision
from spectrope.core.errors import ConfigError, DeviceError


def choose_device(name: Device = "auto") -> torch.device:
    """The torch device that a name stands for; "auto" prefers CUDA.

    Raises:
        ConfigError: If the name is unknown.
        DeviceError: If CUDA is requested but unavailable.
    """
    if name not in get_args(Device):
        raise ConfigError(f"device must be {', '.join(get_args(Device))}; got {name!r}.")
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError("device 'cuda' is not available here; use device='cpu', or 'auto'.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def choose_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The dtype of matrix products; "auto" is bfloat16 where the processor supports it natively.

    Other processors emulate bfloat16 products, fifty times slower than float32.
    """
    if precision != "auto":
        return getattr(torch, precision)
    cuda = device.type == "cuda"
    native = torch.cuda.is_bf16_supported(including_emulation=False) if cuda else cpu_has_bfloat16()
    return torch.bfloat16 if native else torch.float32


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype without its library's, as in "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def cpu_has_bfloat16() -> bool:
    """Whether this processor has AVX512-BF16 or AMX instructions."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def machine() -> dict[str, str | int]:
    """Description of this machine for manifests: processor, cores, accelerator, versions."""
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "accelerator": cuda,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


Item = TypeVar("Item")


def in_precision(device: torch.device, dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """Autocast to `dtype`, or nothing at all for float32."""
    if dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype)


def own_precision(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Disable autocast, so that products are computed in the precision of their factors."""
    place = x.device.type
    on = torch.amp.is_autocast_available(place) and torch.is_autocast_enabled(place)
    return torch.autocast(place, enabled=False) if on else contextlib.nullcontext()


@contextlib.contextmanager
def inference(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Compute without gradients, in a given precision."""
    with torch.inference_mode(), in_precision(device, dtype):
        yield


def each_within(
    context: Callable[[], contextlib.AbstractContextManager[object]], items: Iterator[Item]
) -> Iterator[Item]:
    """Yield items, computing each inside a fresh context that is exited before the item is yielded.

    A generator that yields inside `torch.autocast` would leave autocast enabled in the code that consumes it.
    """
    while True:
        with context():
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def seconds(call: Callable[[], object], device: torch.device, calls: int = 1) -> float:
    """Wall-clock seconds per call, synchronised with the device before and after."""
    _wait(device)
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    _wait(device)
    return (time.perf_counter() - begun) / calls


def median_seconds(step: Callable[[], None], device: torch.device, steps: int = 5) -> float:
    """Median seconds of a few steps, after one warm-up step."""
    return median([seconds(step, device) for _ in range(steps + 1)][1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
