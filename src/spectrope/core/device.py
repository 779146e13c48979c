"""Where tensors live and in which precision products are taken."""

import platform
from typing import Literal

import torch

from spectrope.core.errors import DeviceError

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "float32", "bfloat16"]


def choose_device(name: Device = "auto") -> torch.device:
    """The torch device that a name stands for; "auto" prefers CUDA.

    Raises:
        DeviceError: If CUDA is asked for and this machine has none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError("device 'cuda' is not available here; use --device cpu, or auto.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def choose_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The dtype of matrix products; "auto" takes bfloat16 where the processor multiplies it natively.

    A processor without such instructions emulates them, fifty times slower than float32.
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
    """What results and timings were taken on: processor, cores, accelerator, versions."""
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
