"""Check by the ancestry of commits that the plan predates the results, and list later changes."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from spectrope.core import StoreError
from spectrope.store import read_records
from spectrope.study.plan import FILE, is_named

# What decides words from rows.
ANALYSIS = (FILE.parent, FILE.parent.with_name("stats"))


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of the plan, or of the analysis.

    Args:
        commit: The commit that made it.
        when: Date of that commit.
        digest: First digits of the SHA-256 of the file, or of git's names of the folders.
        subject: What the commit says.
        rows: Rows of the scale that were committed by then.
    """

    commit: str
    when: str
    digest: str
    subject: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class StudyAudit:
    """Result of an audit of the rows of one scale against the history of commits.

    Args:
        versions: Of the plan, the first one first; the others are amendments.
        rows: Rows in the file.
        unnamed: Those of uncommitted or unnamed code.
        unknown: Those of commits that this repository does not have.
        before: Those of commits that do not have the plan.
        under: Rows by the digest of the plan that their commit has.
        waiting: Rows that are in no commit yet.
        misplaced: Rows that contradict the history: their commit is not an ancestor of the one that added
            them, or they ended before the former or after the latter.
        analysis: The code that judges rows, as it was when the first one was added, and its later versions.
    """

    versions: tuple[Version, ...]
    rows: int
    unnamed: int
    unknown: int
    before: int
    under: dict[str, int]
    waiting: int
    misplaced: int
    analysis: tuple[Version, ...]

    @property
    def passes(self) -> bool:
        """Whether each row is of a clean commit that has a version of the plan, and none is misplaced."""
        known = {version.digest for version in self.versions}
        under_plan = sum(n for digest, n in self.under.items() if digest in known)
        return bool(self.versions) and under_plan == self.rows and not self.misplaced


def audit(rows: Path, plan: Path = FILE, code: Sequence[Path] = ANALYSIS) -> StudyAudit:
    """Follow the commits of rows, of the plan and of the analysis through the repository that holds them.

    Args:
        rows: File of rows.
        plan: The plan.
        code: Folders of the analysis.

    Raises:
        StoreError: If the plan is in no repository, or the rows cannot be read.
    """
    root = Path(_git(plan.parent, "rev-parse", "--show-toplevel"))
    name = plan.resolve().relative_to(root.resolve()).as_posix()
    versions = _versions(root, name, rows)
    records, complaints = read_records(rows) if rows.exists() else ([], [])
    if complaints:
        raise StoreError(f"{rows}: {complaints[0]} The audit needs a file of whole rows.")
    last = {record.get("run"): record.get("facts", {}).get("commit") for record in records}
    counts = Counter(last.values())
    unnamed = unknown = before = 0
    under: Counter[str] = Counter()
    for commit, n in counts.items():
        if not is_named(commit):
            unnamed += n
        elif not _has(root, "cat-file", "-e", f"{commit}^{{commit}}"):
            unknown += n
        elif not versions or not _has(root, "merge-base", "--is-ancestor", versions[0].commit, commit):
            before += n
        else:
            under[_digest(root, commit, name)] += n
    added = list(_added(root, rows))
    return StudyAudit(
        versions=tuple(versions),
        rows=len(last),
        unnamed=unnamed,
        unknown=unknown,
        before=before,
        under=dict(under),
        waiting=sum(commit is None for commit, _ in added) if added else len(last),
        misplaced=sum(_is_misplaced(root, commit, facts) for commit, facts in added if commit),
        analysis=tuple(_analyses(root, code, rows, [commit for commit, _ in added if commit])),
    )


def _added(root: Path, rows: Path) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    """The facts of each row, with the commit that added its line; None where that is still to come."""
    resolved = rows.resolve()
    if not resolved.is_relative_to(root.resolve()) or not _has(
        root, "ls-files", "--error-unmatch", str(resolved)
    ):
        return
    commit = ""
    for line in _git(root, "blame", "--line-porcelain", "--", str(resolved)).splitlines():
        if line.startswith("\t"):
            yield (None if set(commit) == {"0"} else commit), json.loads(line)["facts"]
        elif is_named(line.split(" ", 1)[0]):
            commit = line.split(" ", 1)[0]


def _is_misplaced(root: Path, added_by: str, facts: Mapping[str, Any]) -> bool:
    """Whether a row contradicts history; one of unnamed code is counted elsewhere."""
    made_by = facts.get("commit")
    if not is_named(made_by) or not _exists(root, made_by):
        return False
    if not _is_ancestor(root, made_by, added_by):
        return True
    try:
        ended = datetime.fromisoformat(str(facts.get("finished_at"))).replace(microsecond=0)
        return not _dated(root, made_by) <= ended <= _dated(root, added_by)
    except (ValueError, TypeError):
        return True


def _analyses(root: Path, code: Sequence[Path], rows: Path, adding: Sequence[str]) -> Iterator[Version]:
    """The analysis when the first row was added, and each version since then."""
    inside = [one.resolve() for one in code if one.resolve().is_relative_to(root.resolve())]
    folders = [one.relative_to(root.resolve()).as_posix() for one in inside]
    if not adding or not folders:
        return
    first = min(set(adding), key=lambda commit: _dated(root, commit))
    log = _git(root, "log", "--reverse", "--no-merges", "--format=%H", f"{first}..HEAD", "--", *folders)
    for commit in (first, *log.split()):
        when, subject = _git(root, "show", "-s", "--format=%cI%x09%s", commit).split("\t", 1)
        trees = [
            _git(root, "rev-parse", f"{commit}:{one}") for one in folders if _exists(root, f"{commit}:{one}")
        ]
        yield Version(
            commit=commit[:12],
            when=when,
            digest=sha256("\n".join(trees).encode()).hexdigest()[:12],
            subject=subject,
            rows=_rows_at(root, commit, rows),
        )


@cache
def _exists(root: Path, thing: str) -> bool:
    return _has(root, "cat-file", "-e", thing)


@cache
def _is_ancestor(root: Path, early: str, late: str) -> bool:
    return _has(root, "merge-base", "--is-ancestor", early, late)


@cache
def _dated(root: Path, commit: str) -> datetime:
    return datetime.fromisoformat(_git(root, "show", "-s", "--format=%cI", commit))


def _versions(root: Path, name: str, rows: Path) -> Sequence[Version]:
    if not _has(root, "rev-parse", "HEAD"):
        return []
    log = _git(root, "log", "--reverse", "--no-merges", "--format=%H%x09%cI%x09%s", "--", name).splitlines()
    made = (line.split("\t", 2) for line in log)
    return [
        Version(
            commit=commit[:12],
            when=when,
            digest=_digest(root, commit, name),
            subject=subject,
            rows=_rows_at(root, commit, rows),
        )
        for commit, when, subject in made
        if _has(root, "cat-file", "-e", f"{commit}:{name}")
    ]


def _rows_at(root: Path, commit: str, rows: Path) -> int:
    """Lines of a file of rows in a commit."""
    resolved = rows.resolve()
    if not resolved.is_relative_to(root.resolve()):
        return 0
    place = f"{commit}:{resolved.relative_to(root.resolve()).as_posix()}"
    return len(_git(root, "show", place).splitlines()) if _has(root, "cat-file", "-e", place) else 0


def _digest(root: Path, commit: str, name: str) -> str:
    return sha256(_git(root, "show", f"{commit}:{name}").encode()).hexdigest()[:12]


def _has(root: Path, *words: str) -> bool:
    return subprocess.run(("git", "-C", str(root), *words), capture_output=True, check=False).returncode == 0


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(("git", "-C", str(root), *words), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise StoreError(f"{root} is in no git repository with its history; the audit needs one.") from None
    return done.stdout.strip()
