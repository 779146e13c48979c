"""GGUF files converted rightly pass, and each fault of a conversion is named, without a runtime."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.checkpoints.gguf.cases import PLAIN, RIGHT, UNCOMPARED, WRONG, llama
from tests.checkpoints.gguf.files import Conversion, permuted, write

from spectrope.checkpoints.gguf import audit_gguf
from spectrope.checkpoints.gguf.applied import applied_layer
from spectrope.checkpoints.gguf.file import GGUFFile, open_gguf
from spectrope.checkpoints.gguf.rows import SideRows, side_rows
from spectrope.checkpoints.gguf.runtime import CONFIRMED, RELEASE, RULES
from spectrope.cli import BAD_INPUT, main
from spectrope.core import ConfigError, SpectropeError, UnsupportedError

ROOT = Path(__file__).parents[3]


def audited(case, folder):
    model = case.model()
    model.save_pretrained(folder / "source")
    return audit_gguf(write(model, folder / "model.gguf", case.conversion), folder / "source")


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_conversion_matches(name, tmp_path):
    audit = audited(RIGHT[name], tmp_path)
    assert audit.ok, str(audit)
    assert not audit.findings


@pytest.mark.parametrize("name", UNCOMPARED)
def test_a_right_conversion_with_fused_projections_has_no_finding(name, tmp_path):
    audit = audited(UNCOMPARED[name], tmp_path)
    assert audit.outcome == "incomplete", str(audit)
    assert not audit.findings


def test_short_factors_match_in_a_context_of_the_original_length(tmp_path):
    case = WRONG["phi3, two sets of factors"]
    assert audited(case, tmp_path).outcome == "differs"
    assert not audit_gguf(tmp_path / "model.gguf", tmp_path / "source", length=64).findings


@pytest.mark.sampled
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_conversion_is_named_in_its_layers_alone(name, tmp_path):
    case = WRONG[name]
    audit = audited(case, tmp_path)
    assert tuple(record.code for record in audit.records) == case.codes, str(audit)
    wrong = {record.layer for record in audit.layers if record.verdict != "matches"}
    assert wrong == set(case.layers), str(audit)
    assert case.says in str(audit)
    assert audit.outcome == "differs"


def test_an_audit_says_whether_the_rules_were_compared_with_a_run(plain, tmp_path):
    told = audit_gguf(plain / "model.gguf").title
    assert told.endswith(f"by rules some of which were compared with runs of its commit {RELEASE}")
    other = write(llama(**PLAIN), tmp_path / "model.gguf", Conversion("internlm2"))
    assert "read in its source code and not compared with a run" in str(audit_gguf(other))
    assert audit_gguf(other).to_dict()["runtime"] is None


def test_architectures_that_were_compared_and_counts_on_the_page_are_those_of_the_results():
    stored = json.loads((ROOT / "campaigns" / "results" / "llama_cpp.json").read_text())["verdicts"]
    rows = list(stored["files"].values())
    assert {row["architecture"] for row in rows} == CONFIRMED
    assert stored["files"].keys() == {*RIGHT, *UNCOMPARED, *WRONG}
    assert f"commit {RELEASE})" in stored["runtime"]
    assert not stored["contradicted"]
    page = " ".join((ROOT / "docs" / "how-to" / "gguf.md").read_text().split())
    right = len(RIGHT) + len(UNCOMPARED)
    assert (
        f"{len(rows)} files of small models with random weights, {right} correct and {len(WRONG)} faulty"
        in page
    )
    assert f"architectures {named(sorted(CONFIRMED))}; the rules of the others were only read" in page


def named(names):
    """Names as the page lists them."""
    return f"{', '.join(f'`{name}`' for name in names[:-1])} and `{names[-1]}`"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A source with one right file of it."""
    folder = tmp_path_factory.mktemp("plain")
    model = llama(**PLAIN)
    model.save_pretrained(folder / "source")
    write(model, folder / "model.gguf", Conversion())
    return folder


def rewritten(folder, tmp_path, **metadata):
    """Another file of the source, with other metadata."""
    return write(llama(**PLAIN), tmp_path / "model.gguf", Conversion(metadata=metadata))


@pytest.mark.parametrize(("layers", "scale"), [(46, 16**-0.5), (42, 32**-0.5)])
def test_the_largest_gemma_2_divides_by_another_width(plain, tmp_path, layers, scale):
    stated = {"attention.key_length": 32, "block_count": layers, "attention.sliding_window": 32}
    file = rewritten(plain, tmp_path, **stated)
    assert applied_layer(open_gguf(file), RULES["gemma2"], 0, 64).scale == pytest.approx(scale)


def test_weights_in_another_format_beside_the_source_are_not_read(plain, tmp_path):
    source = shutil.copytree(plain / "source", tmp_path / "source")
    model = llama(**PLAIN)
    permute = {"q_proj": 4, "k_proj": 2}
    other = {
        name: torch.from_numpy(np.ascontiguousarray(permuted(weight.detach().numpy(), permute[part])))
        if (part := name.split(".")[-2]) in permute
        else weight.detach().clone()
        for name, weight in model.state_dict().items()
    }
    save_file(other, source / "consolidated.safetensors")
    assert audit_gguf(plain / "model.gguf", source).ok
    (source / "model.safetensors").rename(source / "part.safetensors")
    index = source / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(other, "part.safetensors")}))
    assert audit_gguf(plain / "model.gguf", source).ok
    for content in ({"weight_map": {"lm_head.weight": "../source/part.safetensors"}}, [], {}):
        index.write_text(json.dumps(content))
        with pytest.raises(ConfigError, match=r"model\.safetensors\.index\.json"):
            audit_gguf(plain / "model.gguf", source)
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "other.safetensors"}}))
    with pytest.raises(ConfigError, match=r"lacks other\.safetensors"):
        audit_gguf(plain / "model.gguf", source)


def test_a_name_that_is_no_text_is_refused(plain, tmp_path):
    content = (plain / "model.gguf").read_bytes()
    where = content.index(b"general.architecture") + len(b"general.architecture") + 12
    assert content[where : where + 5] == b"llama"
    (tmp_path / "damaged.gguf").write_bytes(content[:where] + b"\xff" + content[where + 1 :])
    with pytest.raises(ConfigError, match=r"is damaged: general\.architecture: UnicodeDecodeError"):
        audit_gguf(tmp_path / "damaged.gguf")


def test_without_a_source_nothing_is_called_a_match(plain):
    audit = audit_gguf(plain / "model.gguf")
    assert audit.outcome == "incomplete"
    assert {record.verdict for record in audit.layers} == {"cannot tell"}
    assert audit.layers[0].effective.turning.fit().base == pytest.approx(5e5)


def test_layers_keep_their_numbers(plain):
    audit = audit_gguf(plain / "model.gguf", plain / "source", layers="-2:")
    assert [record.layer for record in audit.layers] == [2, 3]
    with pytest.raises(ConfigError, match="layers must take at least one of 0 to 3; got 9"):
        audit_gguf(plain / "model.gguf", layers="9")


def test_a_part_of_the_layers_is_not_called_every_layer(plain):
    whole, some = (audit_gguf(plain / "model.gguf", plain / "source", layers=n) for n in (None, "0:2"))
    assert whole.closing().startswith("In every layer, the rotation")
    assert some.closing().startswith("In layers 0 to 1 of 4, the rotation")


def test_the_number_of_layers_must_be_the_sources(plain, tmp_path):
    audit = audit_gguf(rewritten(plain, tmp_path, block_count=2), plain / "source")
    assert [str(finding) for _, finding in audit.findings] == [
        "metadata of the file: block_count 4 declared, 2 effective"
    ]
    with pytest.raises(ConfigError, match="states 9 layers and has tensors of 4; convert it anew"):
        audit_gguf(rewritten(plain, tmp_path, block_count=9))


def test_weights_that_are_not_finite_are_refused(plain, tmp_path):
    def spoilt(name, weight):
        return np.full_like(weight, np.nan) if name == "blk.2.attn_k.weight" else weight

    path = write(llama(**PLAIN), tmp_path / "model.gguf", Conversion(change=spoilt))
    with pytest.raises(ConfigError, match=r"tensor blk\.2\.attn_k\.weight holds numbers that are not finite"):
        audit_gguf(path, plain / "source")


@pytest.mark.parametrize(
    "arguments", [["lock"], ["audit", "--out", "x.html"], ["audit", "--certificate", "x"]]
)
def test_what_needs_a_model_that_runs_refuses_a_file_with_the_way_out(plain, capsys, arguments):
    command, *rest = arguments
    assert main([command, str(plain / "model.gguf"), *rest]) == BAD_INPUT
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    assert "a GGUF file is read and not run" in said
    assert "--json" in said


def test_what_the_runtime_does_not_read_is_told(plain, tmp_path):
    path = rewritten(
        plain, tmp_path, **{"rope.dimension_sections": [4, 2, 2, 0], "attention.sliding_window": 9}
    )
    told = " ".join(why for _, why in audit_gguf(path, plain / "source").reasons())
    assert "llama.cpp does not read rope.dimension_sections in 'llama'" in told
    assert "llama.cpp does not read attention.sliding_window in 'llama'" in told


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"rope.scaling.type": "spiral"}, "rope.scaling.type one of none, linear, yarn, longrope required"),
        ({"rope.scaling.type": "longrope"}, "no rope_factors_long.weight, rope_factors_short.weight"),
        (
            {"rope.scaling.type": "none", "rope.scaling.factor": 4.0},
            "rope.scaling.factor 4 stated, type 'none'",
        ),
        ({"rope.dimension_count": 8}, "rope.dimension_count 16, the width of heads required, 8 effective"),
    ],
)
def test_a_file_that_contradicts_itself_is_named_without_a_source(plain, tmp_path, metadata, says):
    audit = audit_gguf(rewritten(plain, tmp_path, **metadata))
    assert audit.outcome == "differs"
    assert [record.code for record in audit.records] == ["SPE602"]
    assert says in str(audit)


@pytest.mark.parametrize(
    ("sections", "says"),
    [(None, "rope.dimension_sections required, none effective"), ([4, 1, 1, 0], "8 pairs in all required")],
)
def test_sections_must_fill_the_pairs(tmp_path, sections, says):
    path = tmp_path / "model.gguf"
    write(llama(**PLAIN), path, Conversion("qwen2vl", metadata={"rope.dimension_sections": sections}))
    assert says in str(audit_gguf(path))


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"rope.freq_base": -1.0}, "llama.rope.freq_base must be a positive number; got -1.0"),
        ({"rope.freq_base": float("nan")}, "must be a positive number; got nan"),
        ({"block_count": 0}, "llama.block_count must be a positive whole number; got 0"),
        ({"context_length": None}, "has no llama.context_length"),
        ({"rope.scaling.type": "none", "rope.scaling.factor": "x"}, "must be a positive number; got 'x'"),
        ({"rope.dimension_sections": ["a"]}, "rope.dimension_sections must be whole numbers"),
        ({"rope.dimension_count": 7}, "must be an even number up to the width of heads, 16; got 7"),
        ({"attention.head_count": [4]}, "attention.head_count lists 1 layers; layer 1 needs one"),
        ({"attention.key_length": None, "attention.head_count": "four"}, "positive whole number; got 'four'"),
    ],
)
def test_impossible_metadata_are_refused(plain, tmp_path, metadata, says):
    with pytest.raises(ConfigError, match=says.replace("(", r"\(")):
        audit_gguf(rewritten(plain, tmp_path, **metadata), plain / "source")


@pytest.mark.parametrize(
    ("factors", "says"), [([1.0] * 4, "must be 8, one per pair"), ([0.0] * 8, "must be positive numbers")]
)
def test_impossible_factors_are_refused(tmp_path, factors, says):
    conversion = Conversion(tensors={"rope_freqs.weight": np.array(factors, dtype=np.float32)})
    with pytest.raises(ConfigError, match=says):
        audit_gguf(write(llama(**PLAIN), tmp_path / "model.gguf", conversion))


def test_an_unknown_architecture_is_refused(tmp_path):
    path = write(llama(**PLAIN), tmp_path / "model.gguf", Conversion("mamba"))
    with pytest.raises(
        UnsupportedError, match=r"architecture 'mamba', whose positions in llama\.cpp are not known"
    ):
        audit_gguf(path)


def test_files_that_are_no_gguf_files_are_refused(plain, tmp_path):
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ConfigError, match="no GGUF file: it does not begin with the letters GGUF"):
        audit_gguf(tmp_path / "text.gguf")
    with pytest.raises(ConfigError, match="is not a folder"):
        audit_gguf(plain / "model.gguf", tmp_path / "missing")
    with pytest.raises(ConfigError, match="an audit's length must be at least 1; got 0"):
        audit_gguf(plain / "model.gguf", length=0)


def test_a_damaged_file_is_refused_or_read_never_an_error_of_another_kind(plain, tmp_path):
    whole, rng, path = (plain / "model.gguf").read_bytes(), np.random.default_rng(0), tmp_path / "model.gguf"
    ends = rng.integers(4, len(whole), 10).tolist()
    cut = [whole[:end] for end in ends]
    flips = [bytearray(whole) for _ in range(50)]
    for flipped in flips:
        flipped[int(rng.integers(4, 4000))] ^= 1 << int(rng.integers(8))
    told = []
    for content in (*cut, *flips):
        path.write_bytes(content)
        try:
            audit_gguf(path, plain / "source", layers="0")
        except SpectropeError as error:
            told.append(str(error))
    assert len(told) >= len(cut)
    assert not [line for line in told if "\n" in line]


def test_rows_that_heads_do_not_divide_are_not_compared(plain, tmp_path):
    audit = audit_gguf(rewritten(plain, tmp_path, **{"attention.head_count": 2}), plain / "source")
    assert audit.layers[0].reason == "blk.0.attn_q.weight has 64 rows; 2 heads of width 16 need others"
    assert audit.outcome == "incomplete"


def test_a_part_of_several_files_is_refused(plain, monkeypatch):
    monkeypatch.setattr(GGUFFile, "value", lambda self, key: 3 if key == "split.count" else None)
    with pytest.raises(UnsupportedError, match="one of 3 parts of a model; join them first"):
        open_gguf(plain / "model.gguf")


def test_a_missing_package_is_one_line(plain, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UnsupportedError, match=r"not installed; pip install 'spectrope\[gguf\]'"):
        audit_gguf(plain / "model.gguf")


def test_a_damaged_source_is_refused(plain, tmp_path):
    shutil.copytree(plain / "source", tmp_path / "source")
    (tmp_path / "source" / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ConfigError, match=r"is damaged: .*; save the source anew"):
        audit_gguf(plain / "model.gguf", tmp_path / "source")


class TestTheCommand:
    def test_it_prints_a_table_and_ends_with_the_verdict(self, plain, capsys):
        assert main(["audit", str(plain / "model.gguf"), "--source", str(plain / "source")]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert "permuted to causal matches" in told
        assert "The file was read but not run" in told
        assert main(["audit", str(plain / "model.gguf")]) == 3
        assert "give its folder with --source" in capsys.readouterr().out.replace("\n", " ")

    def test_json_holds_the_whole_record(self, plain, capsys):
        asked = ["audit", str(plain / "model.gguf"), "--source", str(plain / "source"), "--json"]
        assert main(asked) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["outcome"] == "matches"
        assert record["layers"][0]["effective"]["turning"]["pairing"] == "halves"

    def test_options_of_models_that_run_are_refused(self, plain, capsys):
        assert main(["audit", str(plain / "model.gguf"), "--serving-modes"]) == BAD_INPUT
        assert "--serving-modes is for models that run" in capsys.readouterr().err
        assert main(["audit", str(plain / "source"), "--source", str(plain / "source")]) == BAD_INPUT
        assert "--source applies only to GGUF files" in capsys.readouterr().err


def test_heads_of_zeros_have_no_size():
    weights = np.random.default_rng(0).normal(size=(4, 8, 6))
    weights[1] = 0
    rows = weights.reshape(32, 6)
    assert side_rows(rows, rows, 4, 8, 1e-6) == SideRows("same", 0.0)
    assert side_rows(1.2 * rows, rows, 4, 8, 0.5).heads == (0, 2, 3)
    assert side_rows(rows + (weights == 0).reshape(32, 6), rows, 4, 8, 0.5).heads == (1,)
