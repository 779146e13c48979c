"""Whether the library tells packed sequences apart."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def sequences_told_apart() -> Iterator[list[int]]:
    """While the block runs, note how many sequences the library finds by restarting positions.

    The library looks for them where it draws masks, if the model's code gives it the positions and there is
    no other mask.

    Yields:
        The number of sequences, each time that it looks.
    """
    from transformers import masking_utils

    found: list[int] = []
    own = masking_utils.find_packed_sequence_indices

    def find(*args: Any, **given: Any) -> Any:
        indices = own(*args, **given)
        if indices is not None:
            found.append(int(indices.max()) + 1)
        return indices

    masking_utils.find_packed_sequence_indices = find
    try:
        yield found
    finally:
        masking_utils.find_packed_sequence_indices = own
