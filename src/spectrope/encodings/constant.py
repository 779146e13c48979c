"""Numbers that an encoding computes with but never trains."""

from collections.abc import Callable

from torch import Tensor, nn


class Constant(nn.Module):
    """A tensor that follows its module between devices and keeps its dtype under `.half()` and the like.

    Frequencies rounded to bfloat16 would turn a token at position 1000 by the wrong angle.

    Args:
        value: The tensor.
    """

    value: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Constant":
        exact = self.value
        super()._apply(fn, recurse)
        self.value = exact.to(self.value.device)
        return self
