"""The callback of `transformers.Trainer` that ends the steps of a watch."""

import warnings
from collections.abc import Callable
from typing import Any

from spectrope.core import SpectropeError, SpectropeWarning, UnsupportedError


def trainer_callback(
    step: Callable[[], object], close: Callable[[], None], moved: type[SpectropeError]
) -> Any:
    """A callback that calls `step` after every training step and `close` after the last.

    Args:
        step: Ends a step.
        close: Ends all.
        moved: What `step` raises to stop the training; the callback warns, and the trainer stops.

    Raises:
        UnsupportedError: If transformers is missing.
    """
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise UnsupportedError(
            "a trainer's callback needs transformers, which is not installed; pip install 'spectrope[hf]'."
        ) from None

    class EncodingCallback(TrainerCallback):
        """Ends the steps of a watch."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            """End a step, and stop the training where the encoding moved."""
            try:
                step()
            except moved as error:
                warnings.warn(str(error), SpectropeWarning, 2)
                control.should_training_stop = True
            return control

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            """Close the watch."""
            close()
            return control

    return EncodingCallback()
