"""What the report says of encodings from the user's own files."""

from tests.figures.synthetic import make_run

from spectrope.figures.sources import law_tables, source_lines, wrong_declarations
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
    told = f"mine declares the law shift-invariant, which does not hold (relative error 2.0e-02): {WRONG}."
    assert wrong_declarations([run]) == [told]
    first = headline(read_tables([run]))[0]
    assert (first.subject, first.sentences) == ("laws", [told])
    assert source_lines([run]) == [
        "mine: Mine in mine.py, SHA-256 0123456789abcdef. Laws: shift-invariant declared, does not hold; "
        f"content-free declared, holds ({ROUNDING})."
    ]


def test_pages_have_a_table_of_laws_for_each_user_defined_encoding(tmp_path):
    run = make_run(tmp_path, "mine")
    laws = [law("shift-invariant", True, False, WRONG), law("learned", False, False)]
    source = {"class": "Mine", "file": "mine.py", "sha256": "0123456789abcdef01", "laws": laws}
    run.finish(run.manifest | {"encoding_files": {"mine": source}})
    [table] = law_tables([run, run])
    assert table.caption.startswith("mine: Mine in mine.py, SHA-256 0123456789abcdef.")
    assert [list(row.values()) for row in table.rows] == [
        ["shift-invariant", "yes", "no", WRONG],
        ["learned", "no", "no", ""],
    ]


def test_an_infinite_error_is_not_printed(tmp_path):
    run = make_run(tmp_path, "mine")
    untrained = law("learned", True, False, WRONG) | {"error_in_float64": float("inf")}
    source = {"class": "Mine", "file": "mine.py", "sha256": "0", "laws": [untrained]}
    run.finish(run.manifest | {"encoding_files": {"mine": source}})
    assert wrong_declarations([run]) == [f"mine declares the law learned, which does not hold: {WRONG}."]


def test_a_law_that_holds_and_is_not_declared_is_reported(tmp_path):
    run = make_run(tmp_path, "mine")
    source = {"class": "Mine", "file": "m.py", "sha256": "0", "laws": [law("learned", False, True, "add it")]}
    run.finish(run.manifest | {"encoding_files": {"mine": source}})
    assert wrong_declarations([run]) == ["mine does not declare the law learned, which holds: add it."]


def test_a_report_of_registered_encodings_says_nothing_of_files(tmp_path):
    run = make_run(tmp_path, "rope")
    assert source_lines([run]) == []
    assert headline(read_tables([run]))[0].subject != "laws"
