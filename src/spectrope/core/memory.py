"""Tune glibc to retain freed memory."""

import ctypes
import platform

# Parameters of glibc's mallopt (malloc.h).
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGE = 2**25  # Bytes; the most that every glibc takes as M_MMAP_THRESHOLD.
KEPT = 2**30


def keep_freed_memory() -> None:
    """Keep up to 1 GiB of freed memory in this process for the next tensors.

    A training step on the CPU frees memory that the next step allocates again. By default glibc returns large
    blocks and the end of the heap to the system in between, and the system clears every page that it hands
    out again. Results stay bitwise identical. Blocks above 32 MiB are still returned. With C libraries other
    than glibc this function does nothing.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT)
