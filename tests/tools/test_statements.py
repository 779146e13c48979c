"""The page of statements leaves nothing out, and names nothing that does not exist."""

import pytest
from tools.site.evidence import Claimed, Command, HeldByTests, InLedger, Member, ledger, read_evidence
from tools.site.statements import SWITCHES, page, statements

from spectrope.encodings import ENCODINGS
from spectrope.study.claim import CLAIMS
from spectrope.study.page.paper.items import FIGURES, TABLES

OF_THE_LEDGER = ("Causal logits",)  # Remarks of ours, which the paper does not make.
STATED = (
    *(f"Eq. {number}" for number in range(1, 13)),
    *(f"{kind} {number}" for kind in ("Assumption", "Remark") for number in ("3.1", "3.2")),
    *("Definition 3.1", "Theorem 3.1", "Prop. B.1", "Prop. B.2", "Prop. B.3", "Lemma B.1"),
)


def test_every_numbered_statement_figure_and_table_has_a_row():
    places = {place for one in statements() for place in one.places}
    numbers = [f"Figure {n}" for one in FIGURES for n in (one.number, *one.others)]
    numbers += [f"Table {one.number}" for one in TABLES]
    assert not [place for place in (*STATED, *numbers, *SWITCHES, "R9", "R10", "R12") if place not in places]


def test_every_claim_and_every_entry_of_the_ledger_answers_a_row():
    answers = [answer for one in statements() for answer in one.answers]
    claims = {answer.kind for answer in answers if isinstance(answer, Claimed)}
    assert claims | {"confounds"} == set(CLAIMS)  # Claim 11 is about the rows of the public code.
    begins = tuple(answer.begins for answer in answers if isinstance(answer, InLedger))
    told = [words for words, _ in ledger() if not words.startswith((*begins, *OF_THE_LEDGER))]
    assert not told


def test_every_row_has_an_answer_and_every_answer_is_found():
    for one in statements():
        assert one.answers
        assert all(answer.found().result for answer in one.answers), one.where
    text = page()
    assert "| Remark 3.1 | Softmax keeps Toeplitz structure. |  | [ledger]" in text
    assert "reproduced under `controlled`; direction only under `described`" in text
    assert "](../images/position-share.svg)" in text


@pytest.mark.parametrize(
    ("evidence", "told"),
    [
        (InLedger("Eq. 13"), "has no entry 'Eq. 13'"),
        (Command("spectrope compose", "nothing"), "no command 'spectrope compose'"),
        (Command("spectrope claims win", "nothing"), "no command 'spectrope claims win'"),
        (Command("spectrope compare --speed 3", "nothing"), "no option --speed"),
        (Command("python -m tools.nothing", "nothing"), "no module 'tools.nothing'"),
        (
            HeldByTests("nothing", ("tools/test_statements.py::test_nothing",)),
            "no test tools/test_statements.py",
        ),
        (read_evidence({"figure": 15}), "has figures 1 to 14; got 15"),
        (Member(ENCODINGS, "nope", "spectrope nope"), "no command 'spectrope nope'"),
    ],
)
def test_what_does_not_exist_is_no_evidence(evidence, told):
    with pytest.raises(LookupError, match=told):
        evidence.found()


def test_evidence_of_no_kind_is_refused():
    with pytest.raises(LookupError, match="no kind of evidence"):
        read_evidence({"rumour": "heard"})
