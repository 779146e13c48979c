"""Positions on several axes: the order of a token in the sequence, then time, row and column."""

import torch
from jaxtyping import Int
from torch import Tensor

from spectrope.core import ConfigError


def order(pos: Tensor) -> Tensor:
    """The place of each token in its sequence, (b or 1, t), from positions with or without axes."""
    return pos[..., 0] if pos.ndim == 3 else pos


def coordinates(pos: Tensor, axes: int) -> Tensor:
    """Coordinates (b or 1, t, axes) of positions; a plain position p stands for (p, ..., p).

    Args:
        pos: Positions (b or 1, t), or (b or 1, t, 1 + n) with the order of the token first.
        axes: How many coordinates are wanted: the last of the n.

    Raises:
        ConfigError: If positions have fewer axes.
    """
    if pos.ndim < 3:
        return torch.atleast_2d(pos)[..., None].expand(*torch.atleast_2d(pos).shape, axes)
    if pos.shape[-1] <= axes:
        raise ConfigError(
            f"positions have {pos.shape[-1] - 1} axes beside the order of the tokens, and the encoding reads "
            f"{axes}; choose a task or a position rule with {axes} axes."
        )
    return pos[..., -axes:]


def grid_positions(rows: Tensor, columns: Tensor) -> Int[Tensor, "n t 4"]:
    """Positions (order, 0, row, column) of tokens on a grid, from their rows and columns, each (n, t)."""
    index = torch.arange(rows.shape[-1], device=rows.device).expand_as(rows)
    return torch.stack([index, torch.zeros_like(index), rows, columns], -1)


def mrope_positions(
    text_before: int, frames: int, height: int, width: int, text_after: int
) -> tuple[Int[Tensor, "1 t 4"], int]:
    """Positions (order, time, height, width) of an image or a video between two texts, and `rope_deltas`.
    Text tokens have the same position on all three axes. For image tokens, the first axis is the frame and
    the others are its row and column, all counted from the end of the preceding text. The following text
    continues after the largest of all positions, so its positions differ from its indices in the sequence by
    `rope_deltas`.

    Args:
        text_before: Tokens of text before the picture.
        frames: Number of frames; 1 for an image.
        height: Rows of a frame, in tokens.
        width: Columns of a frame, in tokens.
        text_after: Tokens of text after the image.

    Returns:
        Positions, and the offset from sequence indices to positions after the image.

    References:
        Qwen2-VL (Wang et al., 2024), M-RoPE; `get_rope_index` of the model's class in transformers.
    """
    before = torch.arange(text_before).expand(3, -1)
    sides = (torch.arange(n) for n in (frames, height, width))
    picture = torch.stack([axis.flatten() for axis in torch.meshgrid(*sides, indexing="ij")]) + text_before
    following = text_before + max(frames, height, width)
    after = (torch.arange(text_after) + following).expand(3, -1)
    axes = torch.cat([before, picture, after], 1)
    index = torch.arange(axes.shape[1])
    delta = following - (text_before + frames * height * width)
    return torch.cat([index[None], axes]).T[None], delta
