"""Check by the ancestry of commits that the plan predates the results, and list later changes."""

import json
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from spectrope.core import StoreError, config_hash
from spectrope.lab import DATA_VERSION
from spectrope.store import RESULTS_VERSION, read_records
from spectrope.study.plan import DEVIATIONS, FILE, has_pilots, is_chosen, is_named, pilot_file

# The code that decides verdicts from rows, and the code that trains and measures.
ANALYSIS = (FILE.parent, FILE.parent.with_name("stats"), FILE.parent.with_name("lab") / "ablation")
LABORATORY = tuple(
    FILE.parents[1] / name
    for name in (
        *("core", "stats", "store", "spectral", "encodings", "attention", "tasks", "models", "lab"),
        *("grokking", "checkpoints/ablation", "checkpoints/repeated"),
    )
)


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of the plan, or of the analysis.

    Args:
        commit: The commit that made it.
        when: Date of that commit.
        digest: First digits of the SHA-256 of the file, or of git's names of the folders.
        subject: What the commit says.
        rows: Runs of the scale that had finished by then, by their own clock.
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
        rows: Runs in the file.
        unnamed: Those of uncommitted or unnamed code.
        unknown: Those of commits that this repository does not have.
        before: Those of commits that do not have the plan.
        under: Rows by the digest of the plan that their commit has.
        waiting: Rows that are in no commit yet.
        misplaced: Rows that contradict the history: their commit is not an ancestor of the one that added
            them, or they ended before the former, or after the latter or the present.
        unchosen: Rows of the decoder under a version of the plan without the choice of its pilots.
        removed: Runs of which a committed row was removed or changed later, and that no deviation names.
            Rows of the scale's pilots included.
        repeated: Runs with several results, of which only one counts, and that no deviation names. Rows of
            the pilots included.
        unsaved: Files of the plan and of the analysis that differ from the last commit.
        analysis: The code that judges rows, as it was when the first one was added, and its later versions.
        laboratory: Number of runs by version of the code that trains and measures.
    """

    versions: tuple[Version, ...]
    rows: int
    unnamed: int
    unknown: int
    before: int
    under: dict[str, int]
    waiting: int
    misplaced: int
    unchosen: int
    removed: tuple[str, ...]
    repeated: tuple[str, ...]
    unsaved: tuple[str, ...]
    analysis: tuple[Version, ...]
    laboratory: dict[str, int]

    @property
    def passes(self) -> bool:
        """Whether each row is of a clean commit that has the plan, and nothing contradicts it."""
        known = {version.digest for version in self.versions}
        under_plan = sum(n for digest, n in self.under.items() if digest in known)
        wrong = self.misplaced or self.unchosen or self.removed or self.repeated or self.unsaved
        return bool(self.versions) and under_plan == self.rows and not wrong


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
    records = _whole(rows)
    ends = _ends(records)
    versions = _versions(root, name, [max(times) for times in ends.values() if times])
    sections = [_section(root, version.commit, name, rows.stem) for version in versions]
    pilots = dict.fromkeys(map(pilot_file, sections))
    watched = {rows: records} | {
        file: _whole(file) for one in pilots if one and (file := rows.with_name(one))
    }
    newest = {record.get("run"): record for record in records}.values()
    counts = Counter(_commit(record) for record in newest)
    decoders = Counter(_commit(record) for record in newest if "encoding_name" in record.get("config", {}))
    unnamed = unknown = before = unchosen = 0
    under, laboratory = Counter[str](), Counter[str]()
    for commit, n in counts.items():
        if not is_named(commit):
            unnamed += n
        elif not _has(root, "cat-file", "-e", f"{commit}^{{commit}}"):
            unknown += n
        elif not versions or not _has(root, "merge-base", "--is-ancestor", versions[0].commit, commit):
            before += n
        else:
            under[_digest(root, commit, name)] += n
            laboratory[_tree(root, commit, LABORATORY)] += n
            if any(map(has_pilots, sections)) and not is_chosen(_section(root, commit, name, rows.stem)):
                unchosen += decoders[commit]
    told = _deviations(root)
    removed = dict.fromkeys(run for file in watched for run in _removed(root, file))
    repeated = [run for rows_of_file in watched.values() for run in _repeated(rows_of_file)]
    added = list(_added(root, rows)) or [(None, record.get("facts", {})) for record in records]
    return StudyAudit(
        versions=tuple(versions),
        rows=len(newest),
        unnamed=unnamed,
        unknown=unknown,
        before=before,
        under=dict(under),
        waiting=sum(commit is None for commit, _ in added),
        misplaced=sum(_is_misplaced(root, commit, facts) for commit, facts in added),
        unchosen=unchosen,
        removed=tuple(run for run in removed if run not in told),
        repeated=tuple(run for run in repeated if run not in told),
        unsaved=tuple(_unsaved(root, (plan, *code))),
        analysis=tuple(_analyses(root, code, [commit for commit, _ in added if commit], ends)),
        laboratory=dict(laboratory),
    )


def _whole(rows: Path) -> Sequence[Mapping[str, Any]]:
    """The rows of a file, all of which can be read; none if there is no file."""
    records, complaints = read_records(rows) if rows.exists() else ([], [])
    if complaints:
        raise StoreError(f"{rows}: {complaints[0]} The audit needs a file of whole rows.")
    for record in records:
        if (own := config_hash(record["config"], DATA_VERSION, RESULTS_VERSION)) != record.get("run"):
            raise StoreError(f"{rows}: run {record.get('run')} has the configuration of run {own}.")
    return records


def _section(root: Path, commit: str, name: str, scale: str) -> Mapping[str, Any]:
    """What the plan of a commit has of a scale."""
    return tomllib.loads(_git(root, "show", f"{commit}:{name}")).get(scale, {})


def _commit(record: Mapping[str, Any]) -> Any:
    return record.get("facts", {}).get("commit")


def _ends(records: Sequence[Mapping[str, Any]]) -> dict[str, set[datetime]]:
    """The distinct times at which each run was finished, as its rows have them."""
    ends: dict[str, set[datetime]] = {}
    for record in records:
        ends.setdefault(str(record.get("run")), set())
        if (ended := _ended(record.get("facts", {}))) is not None:
            ends[str(record.get("run"))].add(ended)
    return ends


def _ended(facts: Mapping[str, Any]) -> datetime | None:
    try:
        ended = datetime.fromisoformat(str(facts.get("finished_at"))).replace(microsecond=0)
    except ValueError:
        return None
    return ended if ended.tzinfo else None


def _repeated(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Runs whose rows differ in a score, in the time at which they were finished, or in a table."""
    results: dict[tuple[str, str], set[str]] = {}
    for record in records:
        parts = {"facts": record.get("facts", {}), **record.get("tables", {})}
        for name, part in parts.items():
            results.setdefault((str(record.get("run")), name), set()).add(json.dumps(part, sort_keys=True))
    return list(dict.fromkeys(run for (run, _), seen in results.items() if len(seen) > 1))


def _deviations(root: Path) -> str:
    """The committed table of deviations; empty if there is none."""
    name = _inside(root, DEVIATIONS)
    return _git(root, "show", f"HEAD:{name}") if name and _exists(root, f"HEAD:{name}") else ""


def _unsaved(root: Path, files: Sequence[Path]) -> list[str]:
    """Files that differ from the last commit."""
    names = [name for one in files if (name := _inside(root, one))]
    return [line[2:].strip() for line in _git(root, "status", "--porcelain", "--", *names).splitlines()]


def _removed(root: Path, rows: Path) -> Iterator[str]:
    """Runs of which a committed line of the file was removed or changed by a later commit."""
    if (name := _inside(root, rows)) is None or not _has(root, "rev-parse", "HEAD"):
        return
    log = _git(root, "log", "--reverse", "-p", "-m", "-U0", "--format=%x00", "--", name)
    unsaved = _git(root, "diff", "-U0", "HEAD", "--", name)
    for change in (*log.split("\0"), unsaved):
        lines = change.splitlines()
        added = {line[1:] for line in lines if line.startswith("+{")}
        gone = [line[1:] for line in lines if line.startswith("-{") and line[1:] not in added]
        yield from dict.fromkeys(str(json.loads(line).get("run")) for line in gone)


def _inside(root: Path, file: Path) -> str | None:
    """Name of a file in the repository; None if it lies outside."""
    resolved = file.resolve()
    return (
        resolved.relative_to(root.resolve()).as_posix() if resolved.is_relative_to(root.resolve()) else None
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


def _is_misplaced(root: Path, added_by: str | None, facts: Mapping[str, Any]) -> bool:
    """Whether a row contradicts history; one of unnamed code is counted elsewhere."""
    made_by = facts.get("commit")
    if not is_named(made_by) or not _exists(root, made_by):
        return False
    if added_by is not None and not _is_ancestor(root, made_by, added_by):
        return True
    ended, latest = _ended(facts), datetime.now(UTC) if added_by is None else _dated(root, added_by)
    return ended is None or not _dated(root, made_by) <= ended <= latest


def _tree(root: Path, commit: str, folders: Sequence[Path]) -> str:
    """First digits of a hash of some folders in a commit."""
    names = [name for one in folders if (name := _inside(root, one)) and _exists(root, f"{commit}:{name}")]
    trees = [_git(root, "rev-parse", f"{commit}:{name}") for name in names]
    return sha256("\n".join(trees).encode()).hexdigest()[:12]


def _analyses(
    root: Path, code: Sequence[Path], adding: Sequence[str], ends: Mapping[str, set[datetime]]
) -> Iterator[Version]:
    """The analysis when the first row was added, and each version since then."""
    folders = [name for one in code if (name := _inside(root, one))]
    if not adding or not folders:
        return
    first = min(set(adding), key=lambda commit: _dated(root, commit))
    log = _git(root, "log", "--reverse", "--format=%H", f"{first}..HEAD", "--", *folders)
    for commit in (first, *log.split()):
        when, subject = _git(root, "show", "-s", "--format=%cI%x09%s", commit).split("\t", 1)
        yield Version(
            commit=commit[:12],
            when=when,
            digest=_tree(root, commit, code),
            subject=subject,
            rows=_by_then([max(times) for times in ends.values() if times], when),
        )


def _by_then(ends: Sequence[datetime], when: str) -> int:
    return sum(ended <= datetime.fromisoformat(when) for ended in ends)


@cache
def _exists(root: Path, thing: str) -> bool:
    return _has(root, "cat-file", "-e", thing)


@cache
def _is_ancestor(root: Path, early: str, late: str) -> bool:
    return _has(root, "merge-base", "--is-ancestor", early, late)


@cache
def _dated(root: Path, commit: str) -> datetime:
    return datetime.fromisoformat(_git(root, "show", "-s", "--format=%cI", commit))


def _versions(root: Path, name: str, ends: Sequence[datetime]) -> Sequence[Version]:
    if not _has(root, "rev-parse", "HEAD"):
        return []
    log = _git(root, "log", "--reverse", "--format=%H%x09%cI%x09%s", "--", name).splitlines()
    made = (line.split("\t", 2) for line in log)
    return [
        Version(
            commit=commit[:12],
            when=when,
            digest=_digest(root, commit, name),
            subject=subject,
            rows=_by_then(ends, when),
        )
        for commit, when, subject in made
        if _has(root, "cat-file", "-e", f"{commit}:{name}")
    ]


def _digest(root: Path, commit: str, name: str) -> str:
    return sha256(_git(root, "show", f"{commit}:{name}").encode()).hexdigest()[:12]


def _has(root: Path, *words: str) -> bool:
    return subprocess.run(("git", "-C", str(root), *words), capture_output=True, check=False).returncode == 0


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(("git", "-C", str(root), *words), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise StoreError(
            f"{root} is not in a git repository with its history, which the audit needs."
        ) from None
    return done.stdout.strip()
