"""Rows against the plan, in a repository made for it."""

import json
import subprocess
from datetime import UTC, datetime, timedelta
from itertools import accumulate, repeat

import pytest
from tests.study.made import row

from spectrope.cli import main
from spectrope.core.errors import StoreError
from spectrope.lab.training.scales import experiment
from spectrope.store import append_record
from spectrope.study.audit import audit
from spectrope.study.commands import _audit
from spectrope.study.plan import is_named
from spectrope.study.rows import StudyRows

START = datetime(2026, 1, 1, tzinfo=UTC)


def git_of(root):
    def git(*words):
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ("git", "-C", str(root), *name, *words), capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    return git


@pytest.fixture
def repository(tmp_path):
    """A repository, and a way to commit all of it that gives the commit's name."""
    git = git_of(tmp_path)
    git("init", "-q")

    dates = accumulate(repeat(timedelta(minutes=1)), initial=START)

    def commit(message):
        git("add", "-A")
        with pytest.MonkeyPatch.context() as clock:
            clock.setenv("GIT_COMMITTER_DATE", next(dates).isoformat())
            git("commit", "-q", "--allow-empty", "-m", message)
        return git("rev-parse", "--short=12", "HEAD")

    return tmp_path, commit


def after_the_last_commit(folder):
    """Half a minute later; there is another minute before the next one."""
    if not (folder / ".git").exists():
        return datetime.now(UTC)
    return datetime.fromisoformat(git_of(folder)("show", "-s", "--format=%cI")) + timedelta(seconds=30)


def put(folder, commits):
    rows = StudyRows(folder / "mid.jsonl")
    for seed, commit in enumerate(commits, len(rows)):
        one = experiment("distance", "rope", scale="mini", seed=100 * len(commits) + seed)
        rows.add(row(one, commit=commit, finished_at=after_the_last_commit(folder).isoformat()))


def test_rows_of_clean_commits_with_the_plan_pass(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    put(root, [commit("plan")] * 3)
    found = audit(root / "mid.jsonl", root / "plan.toml")
    assert found.passes
    assert (found.rows, sum(found.under.values()), len(found.versions)) == (3, 3, 1)


def test_rows_of_other_code_are_counted_by_what_is_wrong(repository):
    root, commit = repository
    early = commit("before the plan")
    (root / "plan.toml").write_text("a = 1\n")
    late = commit("plan")
    put(root, [early, late, f"{late}-dirty", "version 0.1.0", "0123456789ab"])
    found = audit(root / "mid.jsonl", root / "plan.toml")
    assert not found.passes
    assert (found.rows, found.before, found.unnamed, found.unknown) == (5, 1, 2, 1)


def test_an_amendment_is_listed_with_the_rows_that_were_there(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    first = commit("plan")
    put(root, [first, first])
    commit("rows")
    (root / "plan.toml").write_text("a = 2\n")
    second = commit("amended")
    put(root, [second])
    found = audit(root / "mid.jsonl", root / "plan.toml")
    assert [(one.subject, one.rows) for one in found.versions] == [("plan", 0), ("amended", 2)]
    assert [found.under[one.digest] for one in found.versions] == [2, 1]
    assert found.passes


def test_no_rows_pass_once_there_is_a_plan(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    assert not audit(root / "mid.jsonl", root / "plan.toml").passes
    commit("plan")
    assert audit(root / "mid.jsonl", root / "plan.toml").passes


def test_a_torn_row_is_refused(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    commit("plan")
    (root / "mid.jsonl").write_text('{"run":"abc"')
    with pytest.raises(StoreError, match="The audit needs a file of whole rows"):
        audit(root / "mid.jsonl", root / "plan.toml")


def test_a_plan_outside_any_repository_is_refused(tmp_path):
    (tmp_path / "plan.toml").write_text("a = 1\n")
    with pytest.raises(StoreError, match="is not in a git repository"):
        audit(tmp_path / "mid.jsonl", tmp_path / "plan.toml")


@pytest.mark.parametrize(
    ("commit", "named"),
    [("0123456789ab", True), ("0123456789ab-dirty", False), ("version 0.1.0", False), (None, False)],
)
def test_a_named_commit_is_a_clean_one(commit, named):
    assert is_named(commit) is named


def test_the_command_tells_of_rows_that_are_older_than_the_plan(tmp_path, capsys):
    put(tmp_path, ["version 0.1.0"])
    assert main(["claims", "audit", "--rows", str(tmp_path)]) == 1
    assert "were not made by a clean commit that contains the plan" in capsys.readouterr().err
    (tmp_path / "mid.jsonl").rename(tmp_path / "mini.jsonl")
    assert main(["claims", "audit", "--scale", "mini", "--rows", str(tmp_path)]) == 0
    assert "all of these are exploratory" in capsys.readouterr().out


def test_a_row_that_ended_before_its_commit_or_after_it_was_added_is_misplaced(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    first = commit("plan")
    rows = StudyRows(root / "mid.jsonl")
    now = after_the_last_commit(root)
    for seed, shift in enumerate((timedelta(0), timedelta(days=-1), timedelta(days=1))):
        one = experiment("distance", "rope", scale="mini", seed=seed)
        rows.add(row(one, commit=first, finished_at=(now + shift).isoformat()))
    before = audit(root / "mid.jsonl", root / "plan.toml")
    assert (before.waiting, before.misplaced, before.passes) == (3, 1, False)
    commit("rows")
    after = audit(root / "mid.jsonl", root / "plan.toml")
    assert (after.waiting, after.misplaced, after.passes) == (0, 2, False)


def test_a_row_of_a_commit_beside_the_one_that_added_it_is_misplaced(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    first = commit("plan")
    aside = git_of(root)("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "aside")[:12]
    rows = StudyRows(root / "mid.jsonl")
    for seed, name in enumerate((first, aside)):
        one = experiment("distance", "rope", scale="mini", seed=seed)
        rows.add(row(one, commit=name, finished_at=after_the_last_commit(root).isoformat()))
    commit("rows")
    assert audit(root / "mid.jsonl", root / "plan.toml").misplaced == 1


def test_versions_of_the_analysis_are_listed_from_the_first_row_on(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    (root / "code").mkdir()
    (root / "code" / "words.py").write_text("1\n")
    first = commit("plan and code")
    (root / "code" / "words.py").write_text("2\n")
    commit("before any row")
    put(root, [first])
    commit("rows")
    (root / "code" / "words.py").write_text("3\n")
    commit("another analysis")
    audited = audit(root / "mid.jsonl", root / "plan.toml", (root / "code",))
    assert [(one.subject, one.rows) for one in audited.analysis] == [("rows", 1), ("another analysis", 1)]
    assert len({one.digest for one in audited.analysis}) == 2


def rows_of(root, *finished, **facts):
    """A file of rows of one run, finished at these times."""
    one = experiment("distance", "rope", scale="mini", seed=1)
    for number, when in enumerate(finished):
        made = StudyRows(root / f"{number}.jsonl")
        made.add(row(one, finished_at=when.isoformat(), **facts))
        text = (root / f"{number}.jsonl").read_text()
        (root / f"{number}.jsonl").unlink()
        with (root / "mid.jsonl").open("a") as file:
            file.write(text)
    return one


def test_a_run_that_was_trained_again_until_it_suited_does_not_pass(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    made_by = commit("plan")
    now = after_the_last_commit(root)
    rows_of(root, now, commit=made_by)
    commit("rows")
    assert audit(root / "mid.jsonl", root / "plan.toml").passes
    rows_of(root, now + timedelta(seconds=1), commit=made_by)
    found = audit(root / "mid.jsonl", root / "plan.toml")
    assert len(found.repeated) == 1
    assert not found.passes


def test_a_row_that_was_deleted_does_not_pass(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    put(root, [commit("plan")] * 2)
    commit("rows")
    kept, gone = (root / "mid.jsonl").read_text().splitlines()
    (root / "mid.jsonl").write_text(f"{kept}\n")
    commit("one fewer")
    found = audit(root / "mid.jsonl", root / "plan.toml")
    assert found.removed == (json.loads(gone)["run"],)
    assert not found.passes


def test_a_file_that_lost_all_of_its_rows_does_not_pass(repository, capsys, monkeypatch):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    put(root, [commit("plan")])
    commit("rows")
    (root / "mid.jsonl").write_text("")
    commit("none left")
    monkeypatch.setattr(_audit, "audit", lambda rows: audit(rows, root / "plan.toml"))
    assert main(["claims", "audit", "--rows", str(root)]) == 1
    assert "rows that were removed or changed later" in capsys.readouterr().out


def test_a_folder_that_is_missing_is_no_folder_without_rows(tmp_path, capsys):
    assert main(["claims", "audit", "--rows", str(tmp_path / "typo")]) == 2
    assert "typo is not a folder" in capsys.readouterr().err


def test_a_row_that_is_not_committed_and_older_than_its_commit_does_not_pass(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    rows_of(root, datetime(2020, 1, 1, tzinfo=UTC), commit=commit("plan"))
    found = audit(root / "mid.jsonl", root / "plan.toml")
    assert (found.waiting, found.misplaced, found.passes) == (1, 1, False)


def test_an_amendment_tells_how_many_runs_had_finished_though_they_were_not_committed(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    put(root, [commit("plan")] * 2)
    rows = (root / "mid.jsonl").rename(root.parent / "kept-back.jsonl")
    (root / "plan.toml").write_text("a = 2\n")
    commit("amended")
    rows.rename(root / "mid.jsonl")
    commit("rows")
    found = audit(root / "mid.jsonl", root / "plan.toml")
    assert [(one.subject, one.rows) for one in found.versions] == [("plan", 0), ("amended", 2)]


def test_rows_under_a_plan_without_the_choice_of_its_pilots_do_not_pass(repository):
    root, commit = repository
    (root / "plan.toml").write_text("[mid]\norder = []\n")
    put(root, [commit("plan")])
    found = audit(root / "mid.jsonl", root / "plan.toml")
    assert (found.unchosen, found.passes) == (1, False)


CHOSEN = "learning_rate = 0.01, epochs = 4"


@pytest.mark.parametrize(
    ("chosen", "unchosen"),
    [
        ("", 1),
        (f"[mid.chosen]\ndistance = {{{CHOSEN}}}\n", 1),
        (f"[mid.chosen]\ndistance = {{{CHOSEN}}}\ncounting = {{epochs = 6}}\n", 1),
        (f"[mid.chosen]\ndistance = {{{CHOSEN}}}\ncounting = {{{CHOSEN}}}\n", 0),
    ],
    ids=["empty", "one task", "no rate", "both tasks"],
)
def test_the_choice_of_the_pilots_must_be_whole(repository, chosen, unchosen):
    root, commit = repository
    plan = "[mid]\norder = []\nexamples = {distance = 1, counting = 1}\n"
    (root / "plan.toml").write_text(plan + (chosen or "[mid.chosen]\n"))
    put(root, [commit("plan")])
    found = audit(root / "mid.jsonl", root / "plan.toml")
    assert (found.unchosen, found.passes) == (unchosen, not unchosen)


@pytest.mark.parametrize(
    "chosen",
    [
        "x = 1",
        "distance = {learning_rate = 'x', epochs = 4}\ncounting = {learning_rate = 0.01, epochs = -1}",
    ],
)
def test_a_choice_of_something_else_is_none(repository, chosen):
    root, commit = repository
    (root / "plan.toml").write_text(f"[mid]\norder = []\n[mid.chosen]\n{chosen}\n")
    put(root, [commit("plan")])
    assert audit(root / "mid.jsonl", root / "plan.toml").unchosen == 1


def test_a_later_plan_does_not_hide_that_pilots_were_planned(repository):
    root, commit = repository
    rows = StudyRows(root / "old-pilots.jsonl")
    rows.add(row(experiment("distance", "rope", scale="mini", seed=1000)))
    (root / "plan.toml").write_text("[mid]\norder = []\n[mid.pilots]\nfile = 'old-pilots.jsonl'\n")
    commit("plan")
    (root / "old-pilots.jsonl").unlink()
    (root / "plan.toml").write_text("[mid]\n")
    put(root, [commit("amended")])
    found = audit(root / "mid.jsonl", root / "plan.toml")
    assert (found.unchosen, len(found.removed), found.passes) == (1, 1, False)


def test_a_row_under_another_run_s_name_is_refused(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    put(root, [commit("plan")])
    line = json.loads((root / "mid.jsonl").read_text())
    del line["check"]
    line["run"] = "0123456789ab"
    (root / "mid.jsonl").unlink()
    append_record(root / "mid.jsonl", line)
    with pytest.raises(StoreError, match="run 0123456789ab has the configuration of run "):
        audit(root / "mid.jsonl", root / "plan.toml")


def test_rows_of_the_pilots_that_were_removed_or_repeated_do_not_pass(repository):
    root, commit = repository
    chosen = "".join(f"{task} = {{{CHOSEN}}}\n" for task in ("distance", "counting"))
    (root / "plan.toml").write_text(f"[mid.pilots]\nfile = 'mid-pilots.jsonl'\n[mid.chosen]\n{chosen}")
    made_by = commit("plan")
    pilots = StudyRows(root / "mid-pilots.jsonl")
    runs = [experiment("distance", "rope", scale="mini", seed=1000 + seed) for seed in range(2)]
    for one in runs:
        pilots.add(row(one, commit=made_by))
    put(root, [made_by])
    commit("rows")
    assert audit(root / "mid.jsonl", root / "plan.toml").passes
    kept, gone = (root / "mid-pilots.jsonl").read_text().splitlines()
    (root / "mid-pilots.jsonl").write_text(f"{kept}\n")
    StudyRows(root / "mid-pilots.jsonl").add(row(runs[0], test=99.0, commit=made_by))
    commit("changed")
    found = audit(root / "mid.jsonl", root / "plan.toml")
    names = tuple(json.loads(line)["run"] for line in (gone, kept))
    assert ((found.removed, found.repeated), found.passes) == ((names[:1], names[1:]), False)


def test_another_score_of_the_same_time_does_not_pass(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    made_by = commit("plan")
    when = after_the_last_commit(root)
    rows_of(root, when, commit=made_by, test=10.0)
    rows_of(root, when, commit=made_by, test=99.0)
    assert len(audit(root / "mid.jsonl", root / "plan.toml").repeated) == 1


def test_what_is_not_committed_does_not_pass(repository):
    root, commit = repository
    (root / "plan.toml").write_text("a = 1\n")
    put(root, [commit("plan")] * 2)
    commit("rows")
    assert audit(root / "mid.jsonl", root / "plan.toml").passes
    kept, gone = (root / "mid.jsonl").read_text().splitlines()
    (root / "mid.jsonl").write_text(f"{kept}\n")
    assert audit(root / "mid.jsonl", root / "plan.toml").removed == (json.loads(gone)["run"],)
    (root / "plan.toml").write_text("a = 2\n")
    assert audit(root / "mid.jsonl", root / "plan.toml").unsaved == ("plan.toml",)


def test_a_row_that_a_merge_drops_does_not_pass(repository):
    root, commit = repository
    git = git_of(root)
    (root / "plan.toml").write_text("a = 1\n")
    made_by = commit("plan")
    git("checkout", "-q", "-b", "aside")
    put(root, [made_by] * 2)
    commit("rows")
    git("checkout", "-q", "-")
    (root / "other.txt").write_text("other\n")
    commit("other")
    git("merge", "-q", "--no-commit", "--no-ff", "aside")
    kept, gone = (root / "mid.jsonl").read_text().splitlines()
    (root / "mid.jsonl").write_text(f"{kept}\n")
    commit("merge")
    assert audit(root / "mid.jsonl", root / "plan.toml").removed == (json.loads(gone)["run"],)
