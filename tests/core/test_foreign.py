"""Files of users are run once."""

import pytest

from spectrope.core.errors import ConfigError, SpectropeWarning
from spectrope.core.foreign import digest_of, load_object

TEXT = "class Own:\n    slope = 1.0\n"


def test_an_edit_is_told_and_takes_no_effect_until_python_starts_anew(tmp_path, recwarn):
    file = tmp_path / "edited.py"
    file.write_text(TEXT)
    before = load_object(f"{file}:Own")
    assert load_object(f"{file}:Own") is before
    assert not recwarn
    file.write_text(TEXT.replace("1.0", "7.0"))
    with pytest.warns(SpectropeWarning, match=r"edited\.py has changed since it was run; start Python anew"):
        after = load_object(f"{file}:Own")
    assert after is before
    assert digest_of(after) == digest_of(before)


@pytest.mark.parametrize(
    ("what", "spec", "message"),
    [
        ("class", "own.py", "names no class in a file; name it as path/to/file.py:Name"),
        ("function", "own.py", "names no function in a file"),
        ("class", "own.py:Own:x", "takes nothing behind its name; give settings as --set"),
        ("function", "own.py:apply:x", r"own\.py:apply takes nothing behind its name\.$"),
    ],
)
def test_what_is_wanted_is_named(what, spec, message):
    with pytest.raises(ConfigError, match=message):
        load_object(spec, what)
