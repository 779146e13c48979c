"""Positions that a task supplies with its tokens: digits by their place in the number."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def digit_positions(
    digits: Bool[Tensor, "n t"], *, from_end: bool = False, first: int = 1
) -> Int[Tensor, "n t"]:
    """Number the digits of every number in a sequence, for `Batch.positions`; other tokens get 0.

    Counted from the start of numbers that are written least significant digit first, this is Abacus; counted
    from the end for numbers written the usual way and from the start for a reversed result, digits of equal
    significance share a position, which is position coupling.

    Args:
        digits: True where a token is a digit; a number is an unbroken run of them.
        from_end: Whether the last digit of a number is its first position.
        first: Position of a number's first digit; Abacus draws it anew for every training batch.

    References:
        Transformers Can Do Arithmetic with the Right Embeddings (McLeish et al., 2024); Position Coupling:
        Improving Length Generalization of Arithmetic Transformers Using Task Structure (Cho et al., 2024).
    """
    if from_end:
        return digit_positions(digits.flip(-1), first=first).flip(-1)
    index = torch.arange(digits.shape[-1], device=digits.device)
    before = torch.where(digits, -1, index).cummax(-1).values
    return torch.where(digits, index - before + (first - 1), 0)
