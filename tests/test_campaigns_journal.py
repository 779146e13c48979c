"""A campaign that was stopped goes on: what its trials came to is read back, for the same code alone."""

from campaigns.journal import Journal, Outcome, journal_of

FIRST = Outcome("killed before a call", 3, 0, new=True, faults=(), seconds=0.5)
SECOND = Outcome("power lost", 3, 1, new=False, faults=("before call 3: other results in rows",), seconds=1.0)


def test_outcomes_are_read_back(tmp_path):
    journal = Journal(tmp_path / "new" / "journal.jsonl")
    assert journal.outcomes == {}
    journal.add(FIRST)
    journal.add(SECOND)
    assert Journal(journal.path).outcomes == {FIRST.key: FIRST, SECOND.key: SECOND}


def test_a_line_that_was_cut_off_is_tried_again(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.add(FIRST)
    journal.add(SECOND)
    content = journal.path.read_text()
    journal.path.write_text(content[: content.rindex("seconds")])
    resumed = Journal(journal.path)
    assert resumed.outcomes == {FIRST.key: FIRST}
    resumed.add(SECOND)
    assert Journal(journal.path).outcomes == {FIRST.key: FIRST, SECOND.key: SECOND}


def test_other_trials_and_other_code_have_other_journals(tmp_path, monkeypatch):
    paths = {
        journal_of("crashes", "claims run", asked, tmp_path).path for asked in ("0 1.0", "0 1.0", "1 1.0")
    }
    assert len(paths) == 2
    assert all(path.name.startswith("crashes-claims-run-") for path in paths)
    source = tmp_path / "src" / "spectrope"
    source.mkdir(parents=True)
    monkeypatch.setattr("campaigns.journal.ROOT", tmp_path)
    before = journal_of("crashes", "lock", "", tmp_path).path
    (source / "new.py").write_text("pass")
    assert journal_of("crashes", "lock", "", tmp_path).path != before
