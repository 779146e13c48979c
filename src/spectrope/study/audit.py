"""Check by the ancestry of commits that results are younger than the plan."""

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from spectrope.core import StoreError
from spectrope.store import read_records
from spectrope.study.plan import FILE

HASH = re.compile(r"[0-9a-f]{7,40}")


def is_named(commit: str | None) -> bool:
    """Whether a row says of which commit it is, and that nothing was changed beside it."""
    return bool(HASH.fullmatch(commit or ""))


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of the plan.

    Args:
        commit: The commit that made it.
        when: Date of that commit.
        digest: First digits of the SHA-256 of the file.
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
    """What history says of the rows of one scale.

    Args:
        versions: Of the plan, the first one first; the others are amendments.
        rows: Rows in the file.
        unnamed: Those of uncommitted or unnamed code.
        unknown: Those of commits that this repository does not have.
        before: Those of commits that do not have the plan.
        under: Rows by the digest of the plan that their commit has.
    """

    versions: tuple[Version, ...]
    rows: int
    unnamed: int
    unknown: int
    before: int
    under: dict[str, int]

    @property
    def passes(self) -> bool:
        """Whether every row is of a clean commit that has a committed version of the plan."""
        known = {version.digest for version in self.versions}
        return (
            bool(self.versions) and sum(n for digest, n in self.under.items() if digest in known) == self.rows
        )


def audit(rows: Path, plan: Path = FILE) -> StudyAudit:
    """Follow the commits of rows, and those of the plan, through the repository that holds the plan.

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
    return StudyAudit(
        versions=tuple(versions),
        rows=len(last),
        unnamed=unnamed,
        unknown=unknown,
        before=before,
        under=dict(under),
    )


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
