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
            r"task 'rope' is an encoding; write experiment\(task, encoding\)",
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
