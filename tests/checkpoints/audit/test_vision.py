"""Vision towers: unmodified ones match, and what is wrong with a rotation by row and column is named."""

import functools
import json
import math
import re

import pytest
import torch
import transformers
from tests.checkpoints.audit.vision import HOMES, small_tower
from tests.checkpoints.audit.vision_faults import (
    COLUMNS,
    DINO,
    FAULTS,
    GEMMA,
    MINIMAX,
    MLCD,
    MUSE,
    PATCHES,
    PIXTRAL,
    QWEN,
    ROWS,
    SAM,
    code,
    head_1,
    of_coordinates,
    of_places,
    of_table,
)
from tests.checkpoints.audit.zoo import DTYPES, in_precision

from spectrope.checkpoints.adapters.towers import FORMS, GRID
from spectrope.checkpoints.audit import audit, diff
from spectrope.cli import main
from spectrope.core import ConfigError, UnsupportedError, unwatched


def found(model):
    return audit(model, watch=unwatched)


@pytest.mark.sampled
@pytest.mark.parametrize("family", sorted(FORMS))
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_unmodified_tower_matches(family, dtype):
    result = found(small_tower(family, dtype))
    assert [(where, str(finding)) for where, finding in result.findings] == []
    assert result.ok
    assert [one.layer for one in result.vision] == [0, 1]
    assert all(one.effective.origin is not None and one.exercised and one.ordered for one in result.vision)


def test_every_known_tower_can_be_built():
    assert set(FORMS) <= set(HOMES)


@pytest.mark.parametrize("family", ["pixtral", "qwen2_vl_vision"])
def test_frequencies_are_those_of_the_library(family):
    model = small_tower(family)
    rotary = next(m for m in model.modules() if hasattr(m, "recomposition_frequencies"))
    places = torch.cartesian_prod(torch.arange(ROWS), torch.arange(COLUMNS))
    cos, sin = rotary(torch.zeros(1), places)
    angles = torch.atan2(sin, cos)[:, : cos.shape[-1] // 2].double()
    for one in found(model).vision:
        for turning in (one.declared, one.effective):
            wrong = torch.polar(torch.ones_like(angles), turning.angles(places) - angles) - 1
            assert wrong.abs().max() < 1e-5


def test_frequencies_of_dinov3_are_normalised_by_the_grid():
    turning = found(small_tower("dinov3_vit", rope_theta=64.0)).vision[0].effective
    speeds = [2 * math.pi * 64.0 ** (-j / 4) for j in range(4)]
    assert turning.rows == pytest.approx([2 / ROWS * speed for speed in speeds] + [0] * 4, abs=1e-6)
    assert turning.columns == pytest.approx([0] * 4 + [2 / COLUMNS * speed for speed in speeds], abs=1e-6)
    assert turning.origin == ((1 - ROWS) / 2, (1 - COLUMNS) / 2)
    assert turning.base == 64.0


LLAMA4 = "llama4_vision_model"


def test_llama4_counts_patches_from_1_and_its_class_token_last():
    for one in found(small_tower(LLAMA4)).vision:
        assert one.grid == (16, 16)  # Of the declared size: it takes no other.
        assert one.declared.origin == one.effective.origin == (1.0, 1.0)
        assert one.effective.base == 10000.0


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (lambda z: torch.cat([z[..., 4:], z[..., :4]], -1), "SPE115", "axes"),
        (lambda z: torch.cat([z[:-1] * z[0].conj(), z[-1:]]), "", "row 0, column 0"),
        (lambda z: z.real.to(z.dtype), "", ""),
        (lambda z: z[:1].expand_as(z), "SPE110", "encoding"),
    ],
    ids=["rows before columns", "counted from 0", "cosines alone", "the same for all"],
)
def test_faults_of_llama4s_table_are_named(change, code, words):
    model = small_tower(LLAMA4)
    table = model.rotary_embedding
    table.freqs_ci = change(table.freqs_ci)
    told = {(one.code, str(one)) for record in found(model).vision for one in record.findings}
    assert told
    assert all(code in one and words in text for one, text in told), told


@pytest.mark.sampled
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_fault_is_named(name, dtype, monkeypatch):
    family, inject, expected, message = FAULTS[name]
    model = small_tower(family)
    inject(model, monkeypatch)
    result = found(in_precision(model, dtype))
    assert result.outcome == "differs"
    assert {(one.code, one.layer, one.head) for one in result.records} == {
        (expected, 0, None),
        (expected, 1, None),
    }
    assert all(message in one.message for one in result.records), result.records[0].message
    assert all("no pictures" in one.impact.reason for one in result.records)


def test_a_fault_of_one_head_in_one_layer_is_named(monkeypatch):
    model = small_tower(PIXTRAL)
    of_table(head_1, (1,))(model, monkeypatch)
    (record,) = found(model).records
    assert (record.code, record.layer, record.head) == ("SPE110", 1, 1)
    assert "encoding of queries of head 1" in record.message


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", [DINO, PIXTRAL])
def test_a_table_of_low_precision_is_named(family, dtype, monkeypatch):
    def rounded(own, q, k, cos, sin):
        return own(q, k, *(x.to(getattr(torch, dtype)).float() for x in (cos, sin)))

    model = small_tower(family)
    of_table(rounded)(model, monkeypatch)
    records = found(model).records
    assert [(one.code, one.layer) for one in records] == [("SPE106", 0), ("SPE106", 1)]
    assert all("cosines and sines of low precision" in one.message for one in records)


def test_windows_that_are_not_kept_are_named():
    model = small_tower("qwen2_5_vl_vision")
    model.config.fullatt_block_indexes = []
    model.fullatt_block_indexes = [1]
    (record,) = found(model).records
    assert (record.code, record.layer) == ("SPE202", 1)
    assert "windows of 64, 64, 32, 32 patches declared, unlimited effective" in record.message


@pytest.mark.parametrize(
    ("layer", "side", "message"),
    [
        (0, 0, "windows of 16 patches declared, unlimited effective"),
        (0, 8, "windows of 16 patches declared, windows of 64 patches effective"),
        (1, 4, "unlimited declared, windows of 16 patches effective"),
        (1, 20, "unlimited declared, windows of 400 patches effective"),
    ],
)
def test_other_windows_in_which_rows_count_anew_are_named(layer, side, message):
    model = small_tower(SAM)
    own = model.layers[layer]
    own.window_size, own.position_ids = side, own.precompute_positions(model.config, side)
    result = found(model)
    (record,) = result.records
    assert (record.code, record.layer) == ("SPE202", layer)
    assert message in record.message
    assert result.vision[layer].effective is None


@pytest.mark.parametrize("side", [5, 16, 20])
def test_windows_that_the_picture_does_not_fill_raise_nothing(side):
    assert found(small_tower(SAM, window_size=side)).ok


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "window_partition",
            lambda own, states, side: (
                states.reshape(-1, side, side, states.shape[-1]),
                own(states, side)[1],
            ),
            "row 0, column 4 at the place of the patch of row 1, column 0",
        ),
        (
            "window_partition",
            lambda own, states, side: own(states.roll((2, 2), (1, 2)), side),
            "row 14, column 14 at the place of the patch of row 0, column 0",
        ),
        (
            "window_partition",
            lambda own, states, side: (own(states, side)[0].transpose(1, 2), own(states, side)[1]),
            "row 1, column 0 at the place of the patch of row 0, column 1",
        ),
        (
            "window_unpartition",
            lambda own, states, *rest: own(states.flip(0), *rest),
            "several patches at the place of the patch of row 0, column 0",
        ),
    ],
    ids=["strips", "shifted", "transposed", "put back in another order"],
)
def test_windows_of_other_patches_are_named(name, change, message, monkeypatch):
    model = small_tower(SAM)
    monkeypatch.setattr(code(model), name, functools.partial(change, getattr(code(model), name)))
    records = found(model).records
    assert {one.code for one in records} == {"SPE111"}
    assert message in records[0].message


@pytest.mark.parametrize(
    ("family", "module", "change"),
    [
        (MUSE, "ln_pre", lambda out: out.flip(0)),
        (PIXTRAL, "patch_conv", lambda out: out.mT.reshape(out.shape)),
        (DINO, "embeddings.patch_embeddings", lambda out: out.flip(-1)),
    ],
)
def test_patches_in_another_order_than_their_positions_are_named(family, module, change):
    model = small_tower(family)
    model.get_submodule(module).register_forward_hook(lambda _, __, out: change(out))
    records = found(model).records
    assert {(one.code, one.layer) for one in records} == {("SPE111", 0), ("SPE111", 1)}
    assert "at the place of the patch of row 0, column" in records[0].message


@pytest.mark.parametrize("by", [0.3, 4, 10])
@pytest.mark.parametrize("family", [GEMMA, MUSE, QWEN])
def test_a_first_patch_that_lies_far_off_or_between_is_named(family, by):
    model = small_tower(family)
    of_places(lambda places: places + places.new_tensor([0, by], dtype=torch.float32))(model, None)
    records = found(model).records
    assert {(one.code, one.layer) for one in records} == {("SPE402", 0), ("SPE402", 1)}
    start = f"{by + (family == MUSE):g}"
    assert start in re.findall(r"[\d.]+", records[0].message.partition("declared")[2])


def test_pairs_that_a_video_would_turn_must_stand_still():
    model = small_tower(MINIMAX)
    of_places(lambda places: places + places.new_tensor([1, 0, 0]))(model, None)
    records = found(model).records
    assert {one.code for one in records} == {"SPE402"}
    assert "none that explains all pairs effective" in records[0].message


@pytest.mark.parametrize(("projection", "expected"), [("q_proj", "SPE103"), ("v_proj", "SPE112")])
def test_windows_that_differ_are_named(projection, expected):
    model = small_tower(SAM)
    factors = torch.linspace(0.5, 1.5, 16).view(-1, 1, 1, 1)
    own = model.layers[0].attention.get_submodule(projection)
    own.register_forward_hook(lambda _, __, out: out * factors)
    (record,) = found(model).records
    assert (record.code, record.layer) == (expected, 0)


@pytest.mark.parametrize(
    ("factors", "expected", "message"),
    [
        ((1.2, 1.2), "SPE103", "attention factor: 1 declared, 1.2 effective"),
        ((1.3, 1.0), "SPE109", "as large as patches declared, 1.3 times as large effective"),
    ],
    ids=["all tokens", "class token"],
)
def test_factors_beside_a_class_token_are_named(factors, expected, message, monkeypatch):
    def scaled(own, q, k, cos, sin):
        sizes = torch.full((PATCHES + 1, 1, 1), factors[1])
        sizes[0] = factors[0]
        return tuple(x * sizes for x in own(q, k, cos, sin))

    model = small_tower(MLCD)
    of_table(scaled)(model, monkeypatch)
    records = found(model).records
    assert {one.code for one in records} == {expected}
    assert message in records[0].message


@pytest.mark.parametrize("size", [[64, 32], [32, 64]])
def test_pictures_that_are_no_squares_raise_nothing(size):
    model = small_tower(SAM, image_size=size)
    assert found(model).ok
    assert found(model).vision[0].grid == (size[1] // 4, size[0] // 4)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        (MINIMAX, {"spatial_merge_size": 3}),
        ("lfm3_vl_vision", {"spatial_merge_size": 3}),
        (MUSE, {"merge_size": 3}),
        (GEMMA, {"pooling_kernel_size": 13}),
    ],
)
def test_pictures_consist_of_whole_blocks(family, fields):
    assert found(small_tower(family, **fields)).ok


def test_positions_that_are_not_scaled_to_a_window_are_named():
    model = small_tower(SAM)
    model.layers[1].position_ids.mul_(4)
    (record,) = found(model).records
    assert (record.code, record.layer) == ("SPE102", 1)
    assert "× 4 by row, × 4 by column effective" in record.message


def test_one_window_that_turns_otherwise_is_named():
    model = small_tower(SAM)
    ramp = torch.linspace(0.5, 1.5, 4)[:, None, None]
    window = torch.arange(16).view(-1, 1, 1, 1) == 3
    model.layers[0].attention.q_proj.register_forward_hook(
        lambda _, __, out: out * torch.where(window, ramp, 1.0)
    )
    (record,) = found(model).records
    assert (record.code, record.layer) == ("SPE110", 0)
    assert "encoding of queries alone" in record.message


def test_a_class_token_that_turns_by_other_angles_than_learned_is_named(monkeypatch):
    model = small_tower(MLCD)

    def still(own, q, k, cos, sin):
        cos, sin = cos.clone(), sin.clone()
        cos[:, 0], sin[:, 0] = 1.0, 0.0
        return own(q, k, cos, sin)

    of_table(still)(model, monkeypatch)
    records = found(model).records
    assert [(one.code, one.layer) for one in records] == [("SPE402", 0), ("SPE402", 1)]
    assert "none that explains all pairs effective" in records[0].message


def test_a_wrong_factor_on_dot_products_is_named():
    model = small_tower(PIXTRAL)
    model.transformer.layers[1].attention.scaling *= 2
    (record,) = found(model).records
    assert (record.code, record.layer) == ("SPE404", 1)
    assert "0.25 declared, 0.5 effective" in record.message


def test_values_that_turn_are_named(monkeypatch):
    model = small_tower(PIXTRAL)
    turn = torch.linspace(0.5, 1.5, PATCHES)[None, :, None]
    model.transformer.layers[0].attention.v_proj.register_forward_hook(lambda _, __, out: out * turn)
    (record,) = found(model).records
    assert (record.code, record.layer) == ("SPE112", 0)


def test_tokens_before_the_patches_that_turn_are_named(monkeypatch):
    model = small_tower(DINO)
    own = code(model).apply_rotary_pos_emb

    def rotate(q, k, cos, sin, **given):
        before = q.shape[2] - PATCHES
        cos, sin = (torch.cat([x[:before], x]) for x in (cos, sin))
        return own(q, k, cos, sin, **given)

    monkeypatch.setattr(code(model), "apply_rotary_pos_emb", rotate)
    records = found(model).records
    assert {one.code for one in records} == {"SPE109"}
    assert "rotation of the tokens before the patches: none declared" in records[0].message


def test_the_base_in_the_file_is_the_declared_one(tmp_path):
    small_tower(DINO, rope_theta=50.0).save_pretrained(tmp_path)
    result = audit(tmp_path, watch=unwatched)
    assert result.ok
    assert result.vision[0].declared.base == 50.0


def test_a_base_in_the_old_layout_is_read(tmp_path):
    small_tower(PIXTRAL).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    del fields["rope_parameters"]
    path.write_text(json.dumps(fields | {"rope_theta": 5000.0}))
    result = audit(tmp_path, watch=unwatched)
    assert result.ok
    assert result.vision[0].declared.base == result.vision[0].effective.base == 5000.0


def test_a_tower_without_a_base_is_refused():
    model = small_tower(PIXTRAL)
    model.config.rope_parameters = {"rope_type": "axial"}
    with pytest.raises(ConfigError, match="the configuration of 'pixtral' has no rope_theta"):
        found(model)


def qwen2_vl(**vision):
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    text = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    tower = {"embed_dim": 64, "hidden_size": 32, "depth": 2, "num_heads": 4, "patch_size": 4, "mlp_ratio": 2}
    marks = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    tokens = {name: 60 + i for i, name in enumerate(marks)}
    config = transformers.Qwen2VLConfig(
        text_config=text | {"rope_parameters": rope}, vision_config=tower | vision, **tokens
    )
    torch.manual_seed(0)
    return transformers.Qwen2VLForConditionalGeneration(config).eval()


def test_the_record_serialises():
    (one, _) = json.loads(json.dumps(found(small_tower(DINO)).to_dict()))["vision"]
    assert one["grid"] == list(GRID)
    assert one.keys() == {
        "module", "tower", "layer", "grid", "position", "mask", "effective", "declared", "verdict",
        "findings", "exercised", "ordered",
    }  # fmt: skip
    assert one["effective"].keys() == one["declared"].keys() == {
        "pairing", "rows", "columns", "row_errors", "column_errors", "base", "origin", "gain", "phase_error",
    }  # fmt: skip


class TestATowerBesideItsText:
    def test_both_are_audited(self):
        result = audit(qwen2_vl(), length=32, watch=unwatched)
        assert result.ok
        assert [one.module for one in result.vision] == [f"model.visual.blocks.{i}.attn" for i in (0, 1)]
        assert result.to_frame()["layer"].to_list() == ["0", "1", "vision 0", "vision 1"]

    def test_a_fault_of_the_tower_leaves_the_text_right(self, monkeypatch):
        model = qwen2_vl()
        of_places(lambda x: x.flip(-1))(model.model.visual, monkeypatch)
        result = audit(model, length=32, watch=unwatched)
        assert {layer.verdict for layer in result.layers} == {"matches"}
        assert {(one.where, one.code) for one in result.records} == {
            ("layer vision 0", "SPE115"), ("layer vision 1", "SPE115"),
        }  # fmt: skip

    def test_a_tower_that_does_not_run_is_named_as_not_checked(self, monkeypatch):
        model = qwen2_vl()
        monkeypatch.setattr(model.model.visual, "blocks", None)
        result = audit(model, length=32, watch=unwatched)
        assert result.vision == ()
        assert result.ok
        assert "cannot be measured on a picture of 12 × 16 patches" in str(result)

    def test_a_tower_of_another_form_is_named_as_not_checked(self):
        text = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
        text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
        tower = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = transformers.LlavaConfig(
            text_config=text | {"model_type": "llama"},
            vision_config=tower | {"model_type": "clip_vision_model", "image_size": 16, "patch_size": 4},
            image_token_index=60,
        )
        model = transformers.LlavaForConditionalGeneration(config).eval()
        result = audit(model, length=32, watch=unwatched)
        assert result.ok
        assert "not checked: model.vision_tower, which takes other inputs than text" in str(result)


class TestWhatIsForTokensAlone:
    @pytest.mark.parametrize("given", [{"length": 32}, {"serving_modes": True}, {"text": [5] * 16}])
    def test_options_are_refused(self, given):
        (name,) = given
        with pytest.raises(ConfigError, match=f"not on tokens, so {name} does not apply"):
            audit(small_tower(DINO), watch=unwatched, **given)

    def test_a_difference_of_texts_names_their_towers_as_not_compared(self):
        one = audit(qwen2_vl(), length=32, watch=unwatched)
        found = diff(one, one)
        assert found.same
        assert found.uncompared == ("vision 0", "vision 1")
        assert "or vision towers: layers vision 0, vision 1." in " ".join(str(found).split())

    def test_a_difference_is_refused(self):
        one = found(small_tower(DINO))
        with pytest.raises(UnsupportedError, match="compares attention over tokens"):
            diff(one, one)


def test_the_command_says_what_was_looked_at_and_writes_a_page(tmp_path, capsys):
    small_tower(DINO).save_pretrained(tmp_path / "model")
    page = tmp_path / "audit.html"
    assert main(["audit", str(tmp_path / "model"), "--out", str(page)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "a picture of 12 × 16 patches in float32" in printed
    assert "Not checked there: pictures of other sizes" in printed
    assert "rotary by row and column, base 100" in page.read_text()


def test_a_correction_of_a_tower_is_refused(tmp_path, monkeypatch, capsys):
    model = small_tower(DINO)
    model.save_pretrained(tmp_path / "model")
    of_coordinates(lambda x: x.flip(-1))(model, monkeypatch)
    assert main(["audit", str(tmp_path / "model"), "--fix", str(tmp_path / "corrected")]) == 2
    assert "--fix compares attention over tokens" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "corrected").exists()
