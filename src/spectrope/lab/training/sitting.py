"""One sitting of training: step after step, a checkpoint now and then, a stop at a safe point."""

import time
from collections.abc import Callable
from typing import Any

from spectrope.core.errors import Interrupted
from spectrope.core.interrupt import Stop
from spectrope.lab.training.state import TrainingState

SECONDS_BETWEEN_CHECKPOINTS = 30.0


def sit(
    state: TrainingState[Any],
    step: Callable[[], None],
    *,
    is_over: Callable[[], bool],
    before: Callable[[], None],
    save: Callable[[], None],
    stop: Stop,
    place: str,
) -> None:
    """Take steps until training is over.

    Args:
        state: Whose clock runs during a step.
        step: Takes one, evaluations that are due included.
        is_over: Whether training has ended.
        before: Called before every step, off the clock.
        save: Writes the checkpoint.
        stop: Asked after every step whether to stop there.
        place: How many steps there are and where the checkpoint is, to follow "stopped at step 3 of".

    Raises:
        Interrupted: If asked to stop, once the checkpoint is written.
    """
    saved = time.monotonic()
    while not is_over():
        before()
        begun = time.monotonic()
        step()
        state.seconds += time.monotonic() - begun
        stopping = stop() and not is_over()
        if stopping or time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
            save()
            saved = time.monotonic()
        if stopping:
            raise Interrupted(f"stopped at step {state.step} of {place}.")
