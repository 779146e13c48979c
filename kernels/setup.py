"""Compile `attention.cpp` once for each kind of processor; torch's tool knows its headers and libraries."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

LEVELS = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}  # By torch's name of a processor's instructions.
LEAST_TORCH = "0x020a000000000000"  # 2.10, the first with `parallel_for` in its stable interface.


def library(name: str, level: str) -> CppExtension:
    """The library for one kind of processor."""
    flags = [f"-march={level}", "-std=c++20", "-O3", "-fvisibility=hidden", "-Wall", "-Wno-psabi"]
    return CppExtension(
        f"spectrope_kernels._{name}",
        ["attention.cpp"],
        define_macros=[("TORCH_TARGET_VERSION", LEAST_TORCH), ("Py_LIMITED_API", "0x030b0000")],
        extra_compile_args=flags,
        py_limited_api=True,
    )


setup(
    ext_modules=[library(name, level) for name, level in LEVELS.items()],
    # Ninja would take one object for both, since they have the same source.
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
