"""Encodings by name and from files, and their laws as a result that displays."""

import pytest
import torch

import spectrope as sp
from spectrope.core.errors import ConfigError, UnknownNameError
from spectrope.encodings import ENCODINGS, ALiBi, RoPE
from spectrope.tasks import Counting, Distance


@pytest.mark.parametrize("name", ["rope", "RoPE", "ROPE"])
def test_names_match_without_regard_to_case(name):
    assert type(sp.load_encoding(name)) is sp.encodings.RoPE


def test_hyphens_and_underscores_are_alike():
    assert type(sp.load_encoding("per-head")) is type(sp.load_encoding("PerHead")) is sp.encodings.PerHead


def test_fields_reach_the_configuration():
    rope = sp.load_encoding("rope", head_dim=64, schedule="yarn")
    assert rope.config == sp.encodings.RoPE(head_dim=64, schedule=sp.encodings.YaRN()).config


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: sp.load_encoding("rop"), r"unknown encoding 'rop'; did you mean rope"),
        (
            lambda: sp.load_encoding("rope", head_dims=2),
            r"RoPE.Config has no field 'head_dims'; did you mean head_dim",
        ),
        (lambda: RoPE(ALiBi.Config()), r"RoPE takes a RoPE.Config, or its fields by name; got ALiBi.Config"),
        (
            lambda: sp.encodings.ALiBi(sp.encodings.ALiBi.Config(), n_heads=2),
            r"got both a configuration and n_heads=",
        ),
        (
            lambda: sp.encodings.RoPE(head_dim="wide"),
            r"RoPE.Config.head_dim: Input should be a valid integer",
        ),
        (
            lambda: Counting(Distance.Config()),
            r"Counting takes a Counting.Config, or its fields by name; got",
        ),
        (
            lambda: sp.encodings.ALiBi(n_heads=4)(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4)),
            r"ALiBi was built with n_heads=4; got queries \(1, 2, 3, 4\)",
        ),
        (
            lambda: sp.experiment("rope", "distance"),
            r"task 'rope' is an encoding; the task is named first, and is one of addition, counting, ",
        ),
        (lambda: sp.experiment("distance", sp.Encoding), r"Encoding is not registered as encoding"),
        (lambda: sp.check_laws(3), r"check_laws takes an encoding, its class, configuration or name; got 3"),
    ],
)
def test_wrong_arguments_get_one_line(attempt, message):
    with pytest.raises(ConfigError, match=message) as caught:
        attempt()
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_positions_of_one_sequence_serve_all_heads():
    x, pos = torch.randn(2, 16, 16, 8), torch.arange(16)  # As many heads as positions.
    for kind in ("rope", "xpos", "fope", "misread_rope"):
        encoding = sp.load_encoding(kind, head_dim=8)
        torch.testing.assert_close(encoding.rotate(x, pos, "key"), encoding.rotate(x, pos[None], "key"))


def test_a_module_shows_its_configuration():
    assert repr(sp.encodings.T5()).startswith("T5(n_heads=16, ")


def test_laws_display_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(ENCODINGS, "_members", {name: ENCODINGS[name] for name in ENCODINGS})
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from spectrope.encodings import Encoding, EncodingConfig\n"
        "class Mine(Encoding, name='shifted_once'):\n"
        "    @dataclass(frozen=True, kw_only=True)\n"
        "    class Config(EncodingConfig):\n"
        "        by: float = 1.0\n"
        "    def embed(self, x, pos):\n"
        "        return x + self.config.by * pos[..., None].to(x.dtype)\n"
    )
    laws = sp.check_laws(f"{tmp_path}/mine.py:Mine")
    assert not laws.honest
    assert "shift-" in repr(laws)
    assert "the declaration is wrong; remove the tag" in laws.to_frame()["note"].to_list()
    assert "<table>" in laws._repr_html_()
    assert sp.check_laws(sp.encodings.RoPE(head_dim=8)).honest


def test_unknown_names_say_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean kerple_log"):
        sp.load_encoding("kerple_lag")


@pytest.mark.parametrize(
    "encoding",
    [
        sp.encodings.Learned(d_model=32, max_length=16),
        sp.encodings.RelativeTable(n_heads=4, max_length=8),
        sp.encodings.Sum(),
        sp.encodings.PerHead(),
        sp.encodings.Sum(parts=(sp.encodings.RoPE.Config(head_dim=64),)),
    ],
)
def test_an_encoding_of_any_size_is_tested_at_its_own(encoding):
    assert sp.check_laws(encoding).honest


def test_the_width_of_a_part_is_that_of_its_spectrum():
    parts = (sp.encodings.RoPE.Config(head_dim=64),)
    found = sp.spectrum(sp.encodings.Sum(parts=parts), length=16).to_frame()
    assert found.equals(sp.spectrum(sp.encodings.RoPE(head_dim=64), length=16).to_frame())


@pytest.mark.parametrize("name", ["p_rope", "rope@shifted"])
def test_combinations_have_a_spectrum_by_their_name(name):
    spelled = {"p_rope": "rope:proportional", "rope@shifted": "rope"}[name]
    frames = [sp.spectrum(one, length=16, heads=2).to_frame() for one in (name, spelled)]
    assert frames[0].equals(frames[1])


def test_a_law_that_holds_undeclared_is_said_to_hold_for_what_was_tested():
    (note,) = {
        check.note
        for check in sp.check_laws("rope:dynamic_ntk,trained_length=131072").checks
        if not check.honest
    }
    assert note == "holds for all that was tested; add the tag if it holds at every position"


def test_a_spectrum_keeps_the_sizes_that_an_encoding_was_given():
    wide = sp.spectrum("rope:head_dim=64", length=32).to_frame()
    assert wide.equals(sp.spectrum(sp.encodings.RoPE(head_dim=64), length=32).to_frame())
    assert wide.equals(sp.spectrum(sp.encodings.RoPE.Config(head_dim=64), length=32).to_frame())
    assert sp.spectrum(sp.encodings.ALiBi.Config(n_heads=2), length=16).to_frame().height == 2
    for heads in (15, 16, 17):  # 16 is the default of the class.
        assert len(sp.spectrum(sp.encodings.ALiBi.Config(n_heads=heads), length=16).kernels) == heads
    with pytest.raises(ConfigError, match="heads=4, but the encoding has n_heads=2; give one"):
        sp.spectrum("alibi:n_heads=2", heads=4)
    with pytest.raises(ConfigError, match=r"RoPE.Config has no field 'n_heads'"):
        sp.spectrum("rope:n_heads=4")
    with pytest.raises(ConfigError, match=r"ALiBi.Config has no field 'head_dim'"):
        sp.spectrum("alibi:head_dim=4")
    for latent in ("mla:head_dim=32", "mla+p_rope:head_dim=32"):
        assert sp.spectrum(latent, length=16).kernels
    assert len(sp.spectrum(sp.encodings.ALiBi.Config(), length=16, heads=4).kernels) == 4
    with pytest.raises(ConfigError, match="max_length is not set in a spectrum"):
        sp.spectrum("fope:max_length=64")


@pytest.mark.parametrize("name", ["rope:longrope", "rope:dynamic_ntk", "rope:clex"])
def test_schedules_of_the_length_have_a_spectrum_at_that_length(name):
    n, encoding = 512, sp.load_encoding(name, head_dim=8)
    kernel = sp.spectrum(encoding, length=n).kernels[0].values
    unit = torch.eye(8, dtype=torch.float64)[:, None, None].expand(8, 1, n, 8)
    logits = encoding(unit, unit).sum((0, 1)) / 8**0.5
    torch.testing.assert_close(logits[:, 0].detach(), kernel, atol=1e-9, rtol=0)


def test_eigenvalues_that_must_vanish_are_not_counted():
    said = [str(one) for one in sp.spectrum("p_rope", length=512, heads=1).parts()]
    assert any(line.startswith("13 eigenvalues that need not vanish") for line in said)
    narrow = [str(one) for one in sp.spectrum(sp.encodings.RoPE(head_dim=4), length=64).parts()]
    assert not narrow[-1].endswith("...")


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ({"device": "cpu"}, "device"),
        ({"tokenizer": len}, "tokenizer"),
        ({"root": "elsewhere"}, "root"),
        ({"allow_download": True}, "allow_download"),
    ],
)
def test_what_an_encoding_does_not_need_is_refused(arguments, refused):
    with pytest.raises(ConfigError, match=refused):
        sp.spectrum("alibi", **arguments)
    with pytest.raises(ConfigError, match="heads"):
        sp.spectrum(sp.encodings.ALiBi(n_heads=2), heads=4)
