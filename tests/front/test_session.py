"""Encodings that are defined in a session: the code is part of the run."""

import subprocess
import sys

import pytest

FADING = """
from dataclasses import dataclass
import spectrope as sp

class Fading(sp.Encoding, name="fading"):
    form = sp.encodings.Form.DOT_PLUS_BIAS
    tags = frozenset({sp.encodings.Tag.SHIFT_INVARIANT, sp.encodings.Tag.CONTENT_FREE})

    @dataclass(frozen=True, kw_only=True)
    class Config(sp.encodings.EncodingConfig):
        n_heads: int = 8

    def bias(self, ctx):
        return -0.1 * ctx.lag.abs()[:, None].float()

def compared(workers=1):
    plan = {"epochs": 1, "n_examples": 60, "watch": sp.unwatched, "workers": workers}
    return sp.compare(["nope", "fading"], "distance", **plan).runs[1]
"""
FIRST = (
    FADING
    + """
if __name__ == "__main__":
    print(compared(workers=2).id)
"""
)
SECOND = f"""
import spectrope as sp
(run,) = (run for run in sp.runs() if run.config["encoding_name"] == "fading")
try:
    sp.ablate(run)
except ValueError as error:
    print(error)
fading = {FADING!r}
exec(fading.replace("return -", "return  -  "))
print(compared().id)
print(sp.ablate(run, examples=8, watch=sp.unwatched).to_frame().height)
exec(fading.replace("0.1", "0.2"))
print(compared().id)
"""


def ran(folder, text: str) -> list[str]:
    (folder / "script.py").write_text(text)
    command = [sys.executable, "-W", "ignore", "script.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line[:1].isalnum()]


@pytest.mark.sampled("walkthrough")
def test_other_code_is_another_run_and_is_defined_again_to_be_measured(tmp_path):
    *_, first = ran(tmp_path, FIRST)
    refusal, *told = ran(tmp_path, SECOND)
    assert refusal.endswith("or define the class again.")
    ids = [line for line in told if len(line) == 12]
    assert ids[0] == first != ids[1]
    assert "24" in told
