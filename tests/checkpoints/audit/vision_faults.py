"""Faults of vision towers: what is changed in a rotation by row and column that is right."""

import functools
import math
import sys

import torch

from spectrope.checkpoints.adapters.towers import GRID

ROWS, COLUMNS = GRID
PATCHES = ROWS * COLUMNS


def code(model):
    return sys.modules[type(model).__module__]


def of_coordinates(change):
    """DINOv3's coordinates (patches, 2) changed before they turn anything."""

    def inject(model, patch):
        own = code(model).get_patches_center_coordinates
        patch.setattr(code(model), "get_patches_center_coordinates", lambda *a, **g: change(own(*a, **g)))

    return inject


def of_places(change):
    """Rows and columns (patches, 2) changed on the way into the rotary modules."""

    def inject(model, patch):
        def enter(_, args):
            return args[0], change(args[1])

        for one in model.modules():
            if hasattr(one, "recomposition_frequencies"):
                one.register_forward_pre_hook(enter)

    return inject


def by_whole_heads(model, patch):
    """Gemma 4's pairs lie half a head apart, not half of a half."""
    whole = code(model).apply_rotary_pos_emb
    patch.setattr(
        code(model), "apply_multidimensional_rope", lambda x, cos, sin, _: whole(x, cos, sin, unsqueeze_dim=2)
    )


def of_table(change, layers=(0, 1)):
    """Cosines and sines (patches, d) changed before queries and keys are rotated."""

    def inject(model, patch):
        name = next(
            n for n in ("apply_rotary_pos_emb_vision", "apply_rotary_pos_emb") if hasattr(code(model), n)
        )
        own, calls = getattr(code(model), name), []

        def rotate(q, k, cos, sin, **given):
            calls.append(name)
            plain = functools.partial(own, **given)
            changed = (len(calls) - 1) % 2 in layers
            return change(plain, q, k, cos, sin) if changed else plain(q, k, cos, sin)

        patch.setattr(code(model), name, rotate)

    return inject


def of_frequencies(change):
    def inject(model, patch):
        for name, buffer in model.named_buffers():
            if name.endswith("inv_freq"):
                buffer.copy_(change(buffer.clone()))

    return inject


def shifted_keys(own, q, k, cos, sin):
    """Keys turn as the patches one column further on."""
    q = own(q, k, cos, sin)[0]
    c, s = (x.view(ROWS, COLUMNS, -1) for x in (cos, sin))
    step_c, step_s = c[:1, 1:2], s[:1, 1:2]  # pixtral's first patch does not turn
    ahead = (c * step_c - s * step_s).flatten(0, 1), (s * step_c + c * step_s).flatten(0, 1)
    return q, own(q, k, *ahead)[1]


def head_1(own, q, k, cos, sin):
    """Queries of head 1 are not rotated."""
    turned, keys = own(q, k, cos, sin)
    return torch.cat([turned[:, :1], q[:, 1:2], turned[:, 2:]], 1), keys


def adjacent(own, q, k, cos, sin):
    """Neighbouring coordinates are paired, as by code for another layout of the weights."""
    half = cos.shape[-1] // 2
    cos, sin = (x[..., :half].repeat_interleave(2, -1) for x in (cos, sin))

    def turn(x):
        other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        return x * cos + other * sin

    return turn(q), turn(k)


def in_halves(own, q, k, cos, sin):
    """Kimi's pairs turn with the column in one half and with the row in the other."""
    half = cos.shape[-1] // 2
    order = torch.cat([torch.arange(0, half, 2), torch.arange(1, half, 2)]).repeat(2)
    order[half:] += half
    return own(q, k, cos[..., order], sin[..., order])


DINO, PIXTRAL, QWEN, KIMI = "dinov3_vit", "pixtral", "qwen2_vl_vision", "kimi_k25_vision"
GEMMA, MINIMAX, MLCD, MUSE = "gemma4_vision", "minimax_m3_vl_vision", "mlcd_vision_model", "muse_spark_vision"
SAM = "sam3_vit_model"
# By name: family, what is injected, the code and a part of the message.
FAULTS = {
    "DINOv3, axes exchanged": (
        DINO, of_coordinates(lambda x: x.flip(-1)), "SPE115", "row and column exchanged",
    ),
    "DINOv3, coordinates from 0 to 1": (
        DINO, of_coordinates(lambda x: (x + 1) / 2), "SPE102", "as of coordinates from 0 to 1",
    ),
    "DINOv3, no factor 2π": (
        DINO, of_coordinates(lambda x: x / (2 * math.pi)), "SPE102", "as without the factor 2π",
    ),
    "DINOv3, corners instead of centres": (
        DINO, of_coordinates(lambda x: x - x.new_tensor([1 / ROWS, 1 / COLUMNS])), "SPE402",
        "row -5.5, column -7.5 declared, row -6, column -8 effective",
    ),
    "DINOv3, a column further on": (
        DINO, of_coordinates(lambda x: x + x.new_tensor([0, 2 / COLUMNS])), "SPE402",
        "row -5.5, column -6.5 effective",
    ),
    "DINOv3, base of texts": (
        DINO, of_frequencies(lambda f: 10000.0 ** -torch.arange(0, 1, 1 / len(f))), "SPE101",
        "base: 100 declared, 10",
    ),
    "DINOv3, patches column by column": (
        DINO, of_coordinates(lambda x: x.view(ROWS, COLUMNS, 2).transpose(0, 1).reshape(-1, 2)), "SPE111",
        "counted column by column",
    ),
    "DINOv3, patches in another order": (
        DINO, of_coordinates(lambda x: x[torch.randperm(PATCHES, generator=torch.manual_seed(0))]), "SPE106",
        "angles: in proportion to row and column declared",
    ),
    "DINOv3, rows backwards": (
        DINO, of_coordinates(lambda x: x * x.new_tensor([-1, 1])), "SPE111", "rows counted backwards",
    ),
    "Pixtral, columns backwards": (
        PIXTRAL, of_places(lambda x: torch.stack([x[:, 0], COLUMNS - 1 - x[:, 1]], -1)), "SPE111",
        "columns counted backwards",
    ),
    "Pixtral, base ignored": (
        PIXTRAL, of_frequencies(lambda f: f ** 1.25), "SPE101", "base: 10000 declared, ",
    ),
    "Pixtral, rows and columns of one progression": (
        PIXTRAL, of_frequencies(lambda f: f[: len(f) // 2].repeat(2)), "SPE102", "× 1 by row, × 3.16",
    ),
    "Pixtral, axes exchanged": (
        PIXTRAL, of_places(lambda x: x.flip(-1)), "SPE115", "row and column exchanged",
    ),
    "Pixtral, columns from 1": (
        PIXTRAL, of_places(lambda x: x + x.new_tensor([0, 1])), "SPE402",
        "row 0, column 1 effective (harmless",
    ),
    "Pixtral, rows of another width": (
        PIXTRAL,
        of_places(lambda _: torch.stack([torch.arange(PATCHES) // 17, torch.arange(PATCHES) % 17], -1)),
        "SPE111", "counted in rows of 17 patches",
    ),
    "Pixtral, rows end at 7": (
        PIXTRAL, of_places(lambda x: x.clamp(max=7)), "SPE111", "rows and columns stay at 7",
    ),
    "Pixtral, one index": (
        PIXTRAL, of_places(lambda _: torch.arange(PATCHES)[:, None].expand(-1, 2)), "SPE111",
        "one index of the patch on both axes",
    ),
    "Pixtral, keys a column ahead": (PIXTRAL, of_table(shifted_keys), "SPE108", "position of keys"),
    "Pixtral, sine lost its sign": (
        PIXTRAL, of_table(lambda own, q, k, c, s: own(q, k, c, -s)), "SPE107",
        "sense of rotation: 1 declared",
    ),
    "Pixtral, not rotated": (
        PIXTRAL, of_table(lambda own, q, k, c, s: (q, k)), "SPE110",
        "rotary by row and column, base 10000 declared, none",
    ),
    "Pixtral, keys not rotated": (
        PIXTRAL, of_table(lambda own, q, k, c, s: (own(q, k, c, s)[0], k)), "SPE110",
        "encoding of keys alone",
    ),
    "Pixtral, pairing": (PIXTRAL, of_table(adjacent), "SPE104", "halves declared, adjacent effective"),
    "Qwen2-VL, blocks ignored": (
        QWEN,
        of_places(lambda _: torch.cartesian_prod(torch.arange(ROWS), torch.arange(COLUMNS))),
        "SPE111", "those of reading order, not of blocks",
    ),
    "Qwen2-VL, axes exchanged": (QWEN, of_places(lambda x: x.flip(-1)), "SPE115", "row and column exchanged"),
    "Qwen2-VL, factor on the rotation": (
        QWEN, of_table(lambda own, q, k, c, s: own(q, k, 1.2 * c, 1.2 * s)), "SPE103", "1 declared, 1.2",
    ),
    "Gemma 4, pairs of the whole head": (GEMMA, by_whole_heads, "SPE110", "of no known layout effective"),
    "Gemma 4, axes exchanged": (GEMMA, of_places(lambda x: x.flip(-1)), "SPE115", "row and column exchanged"),
    "Gemma 4, base": (GEMMA, of_frequencies(lambda f: f**2), "SPE101", "base: 100 declared, "),
    "MiniMax M3, time last": (
        MINIMAX, of_places(lambda x: x[:, [1, 2, 0]]), "SPE115",
        "pairs 0 to 1 by row, 2 to 3 by column, 4 to 5 by neither effective",
    ),
    "MiniMax M3, base": (MINIMAX, of_frequencies(lambda f: f**1.25), "SPE101", "base: 10000 declared, "),
    "MLCD, patches from 1": (MLCD, of_places(lambda x: x + 1), "SPE402", "row 1, column 1 effective"),
    "Muse, patches from 0": (
        MUSE, of_places(lambda x: x - 1), "SPE402", "row 1, column 1 declared, row 0, column 0 effective",
    ),
    "SAM 3, axes exchanged": (SAM, of_places(lambda x: x.flip(-1)), "SPE115", "row and column exchanged"),
    "VideoLLaMA 3, blocks ignored": (
        "video_llama_3_vision",
        of_places(lambda _: torch.cartesian_prod(torch.arange(ROWS), torch.arange(COLUMNS))),
        "SPE111", "those of reading order, not of blocks",
    ),
    "Kimi, halves instead of in turn": (
        KIMI, of_table(in_halves), "SPE115", "pairs 0, 1, 2, 3, … by column, row, column, row, …",
    ),
}  # fmt: skip
