"""What the report says of encodings from the user's own files."""

from tests.figures.synthetic import make_run

from spectrope.figures.sources import source_lines, wrong_declarations
from spectrope.figures.summary import headline
from spectrope.figures.tables import read_tables

WRONG = "the declaration is wrong; remove the tag"
ROUNDING = "float32 rounding alone; `pos.double()` is exact"


def law(name, declared, holds, note=""):
    return {
        "law": name,
        "declared": declared,
        "holds": holds,
        "error": 0.1,
        "error_in_float64": 0.02,
        "note": note,
    }


def test_a_wrong_declaration_is_the_first_thing_that_the_report_says(tmp_path):
    run = make_run(tmp_path, "mine")
    laws = [law("shift-invariant", True, False, WRONG), law("content-free", True, True, ROUNDING)]
    source = {"class": "Mine", "file": "mine.py", "sha256": "0123456789abcdef01", "laws": laws}
    run.finish(run.manifest | {"encoding_files": {"mine": source}})
    told = f"mine declares the law shift-invariant and breaks it, relative error 2.0e-02: {WRONG}."
    assert wrong_declarations([run]) == [told]
    first = headline(read_tables([run]))[0]
    assert (first.subject, first.sentences) == ("laws", [told])
    assert source_lines([run]) == [
        "mine: Mine in mine.py, SHA-256 0123456789abcdef. Laws: shift-invariant declared, does not hold; "
        f"content-free declared, holds ({ROUNDING})."
    ]


def test_a_law_that_is_kept_and_not_declared_is_told(tmp_path):
    run = make_run(tmp_path, "mine")
    source = {"class": "Mine", "file": "m.py", "sha256": "0", "laws": [law("learned", False, True, "add it")]}
    run.finish(run.manifest | {"encoding_files": {"mine": source}})
    assert wrong_declarations([run]) == ["mine keeps the law learned and does not declare it: add it."]


def test_a_report_of_registered_encodings_says_nothing_of_files(tmp_path):
    run = make_run(tmp_path, "rope")
    assert source_lines([run]) == []
    assert headline(read_tables([run]))[0].subject != "laws"
