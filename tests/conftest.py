"""Array annotations are checked at run time in every test; each process computes on one thread.

Properties are tried on the same examples every time, however long one takes on a busy machine.
"""

import os
import random
from unittest import mock

from hypothesis import settings
from jaxtyping import install_import_hook

import spectrope.core.errors  # noqa: F401  # Not checked: it has no arrays, and every configuration calls it.

# beartype checks a random item of each list, here by a generator of its own.
with mock.patch("random.getrandbits", random.Random(0).getrandbits):
    import beartype._check.code.codemain  # noqa: F401

os.environ.setdefault("OMP_NUM_THREADS", "1")  # Before torch loads: sums depend on the number of threads.
install_import_hook("spectrope", "beartype.beartype")
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
