"""Compiled attention for SpectroPE on CPUs, as operators of torch in `torch.ops.spectrope_kernels`.

Raises:
    ImportError: If the processor is none that the operators were compiled for.
"""

from pathlib import Path

import torch

_PROCESSOR = torch.backends.cpu.get_cpu_capability()
_LIBRARY = Path(__file__).with_name(f"_{_PROCESSOR.lower()}.abi3.so")
if not _LIBRARY.exists():
    raise ImportError(f"spectrope-kernels has no code for the instructions of this processor, {_PROCESSOR}")
torch.ops.load_library(_LIBRARY)
