"""Every Python example of the documentation runs, page by page, in an empty folder."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.own_files import run_no_file_yet

from spectrope.console.terminal import console
from spectrope.lab.training.scales import SCALES, Preset
from spectrope.study.claim import chosen_claims
from spectrope.study.claims.tuned import tried_claims
from spectrope.study.conditions import THROWN
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def small(preset: Preset) -> Preset:
    """A preset with a small model and few examples, of which pages say nothing."""
    model = replace(preset.model, d_model=16, n_heads=2, n_layers=2, d_ff=16)
    return replace(preset, model=model, n_examples=2000)


@pytest.mark.sampled
@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_no_file_yet(monkeypatch)
    namespace = {"__name__": "__main__"}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, str(page), "exec"), namespace)


def test_the_examples_of_readme_run_and_print_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "width", 77)
    monkeypatch.setitem(SCALES, "mini", {name: small(preset) for name, preset in SCALES["mini"].items()})
    text = README.read_text(encoding="utf-8")
    [shown] = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    namespace = {"__name__": "__main__"}
    for block in BLOCK.findall(text):
        exec(compile(block, "README.md", "exec"), namespace)
    printed = [words_of(line) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in map(words_of, shown.splitlines()) if line] == [
        line for line in printed if line and line[0] in {"accuracy", "is", "task", "distance", "─"}
    ]


def words_of(line: str) -> list[str]:
    """The words of a line; numbers and precisions depend on the machine, and so do widths."""
    line = re.sub(r"bfloat16|float32", "PRECISION", line)
    return re.sub(r"─+", "─", re.sub(r"\b\d[\d.]*", "N", line)).split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page):
    missing = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert not missing


def test_every_line_of_the_threat_model_names_a_test():
    lines = (ROOT / "docs" / "explanation" / "threat-model.md").read_text().split("| --- |")[-1].splitlines()
    named = [re.search(r"`([\w/]+\.py)::(test_\w+)` \|$", line) for line in lines if line.startswith("|")]
    assert len(named) > 10
    for match in named:
        assert match
        assert f"def {match[2]}(" in (ROOT / "tests" / match[1]).read_text(), match[0]


def test_the_page_of_claims_has_the_verdicts_of_the_rows():
    rows = StudyRows.load(ROOT / "results" / "mini.jsonl")
    claims = tried_claims(chosen_claims(()), rows, "mini")
    sections = (ROOT / "docs" / "explanation" / "replication.md").read_text().split('<a id="')[1:]
    told = {section.split('"')[0]: section for section in sections}
    assert list(told) == [claim.kind for claim in claims]
    for verdict in Study(tuple(claims), tuple(THROWN), "mini", tuple(range(6))).verdicts(rows):
        line = f"- `{verdict.condition}`: **{verdict.word}**: {verdict.reason}."
        assert line in told[verdict.claim].splitlines()


def test_what_readme_says_of_claims_is_on_their_page():
    section = README.read_text().split("## Results on the papers' claims")[1].split("\n## ")[0]
    section = " ".join(section.split())
    page = (ROOT / "docs" / "explanation" / "replication.md").read_text()
    ratios = r"[\d.]+ times \[[\d., ]+\]"  # Of which pages have logarithms.
    told = re.findall(r"(-?[\d.]+)[\w\s]*\[(-?[\d.]+), (-?[\d.]+)\]", re.sub(ratios, "", section))
    assert len(told) == 4
    assert not [one for one in told if "{} [{} to {}]".format(*one) not in page]
    [runs] = re.findall(r"in (\d+ of \d+ runs) without dropout", section)
    assert f"RoPE has a deposit in {runs} without dropout" in page
    [(ours, theirs)] = re.findall(r"In any layer, by the exact one: (\d+) and (\d+ of \d+)\.", section)
    mid = (ROOT / "docs" / "explanation" / "replication-mid.md").read_text()
    [ahead] = re.findall(r"RoPE is ([\d.]+) points ahead of absolute", section)
    assert f"It is {ahead} points ahead of absolute, the nearest in log odds" in mid
    [first] = re.findall(r"RoPE minus each other encoding, held-out accuracy: predicted .*", mid)
    assert first.count("**reproduced**") == 2
    assert "(reproduced, also under the public code)" in section
    [cost] = re.findall(r"holding out a square of pairs costs ([\d.]+) points", section)
    verdicts = re.findall(r"^\| 1[34]\. .*?\*\*(\w+)\*\* (-?[\d.]+)", mid, re.MULTILINE)
    assert verdicts[0] == ("reproduced", cost)
    assert verdicts[1][0] == "contradicted"
    n = theirs.partition(" ")[2]
    assert f"in any layer, by the exact ablation: `controlled` {ours} {n}, `released` {theirs}.**" in mid
    [planned] = re.findall(
        r"in the first half of the layers\s+in (\d+) of (\d+) runs.*?and in (\d+) of (\d+) of the public",
        section,
        re.DOTALL,
    )
    [line] = re.findall(
        r"RoPE, Task 1, runs with a deposit in the first half of the layers: predicted .*", mid
    )
    shares = re.findall(r"([\d.]+) \[[^\]]*\] of runs, n = (\d+)", line)
    counts = [(round(float(share) * int(n)), int(n)) for share, n in shares]
    assert counts == [(int(planned[0]), int(planned[1])), (int(planned[2]), int(planned[3]))]
