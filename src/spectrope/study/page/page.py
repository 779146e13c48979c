"""Write the page as Markdown, with its pictures in a separate folder."""

import html
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil
from pathlib import Path
from statistics import fmean
from urllib.parse import quote

import numpy as np

from spectrope.core import StoreError
from spectrope.figures import templates_of, write_page
from spectrope.lab import SCALES, Job, experiment
from spectrope.stats import MIN_SEEDS, holm
from spectrope.store import disk_errors
from spectrope.study.arms import FITTED
from spectrope.study.claim import Claim
from spectrope.study.claims.tuned import tuned_forms
from spectrope.study.page.accuracies import COLUMNS, accuracies, seeds_of
from spectrope.study.page.control import ALIKE, NEAR, positive_control
from spectrope.study.page.core_hours import budget, edges
from spectrope.study.page.deposits import deposit_factors
from spectrope.study.page.effects import effects
from spectrope.study.page.findings import findings
from spectrope.study.page.pictures import figures_of
from spectrope.study.plan import deviations, is_named
from spectrope.study.predictions import ALPHA, LEVEL
from spectrope.study.quantities import shallow
from spectrope.study.rows import StudyRows
from spectrope.study.schedule import core_seconds
from spectrope.study.study import RESULTS, Study, merged, outstanding
from spectrope.study.verdict import WORDS, ClaimVerdict, Part, PartResult, Word

NUMBERED = re.compile(r"\d+-[a-z0-9-]+")  # Names of figures of claims.
MOST_DIGITS = 6  # Behind the point.


@dataclass(frozen=True)
class Picture:
    """A chart as a file beside the page.

    Args:
        path: Relative to the page.
        caption: How to read it.
    """

    path: str
    caption: str


@dataclass(frozen=True)
class Planned:
    """Completeness of a plan.

    Args:
        runs: All of it.
        untrained: Runs without a row.
        unmeasured: Runs whose row lacks a table.
    """

    runs: int
    untrained: int
    unmeasured: int

    @classmethod
    def of(cls, jobs: Sequence[Job], rows: StudyRows) -> "Planned":
        """Look up each job."""
        left = outstanding(jobs, rows)
        untrained = sum(rows.get(job.experiment) is None for job in left)
        return cls(len(jobs), untrained, len(left) - untrained)


@dataclass(frozen=True)
class ClaimSection:
    """One claim of the page.

    Args:
        claim: The claim.
        verdicts: One per condition that it is tested under.
        pictures: Its charts.
        planned: Its plan by condition.
        power: What the planned seeds can show.
    """

    claim: Claim
    verdicts: list[ClaimVerdict]
    pictures: list[Picture]
    planned: dict[str, Planned]
    power: str

    @property
    def is_planned(self) -> bool:
        """Whether any of its runs are planned at this scale."""
        return any(plan.runs for plan in self.planned.values())

    def where_planned(self) -> "ClaimSection":
        """The section without the conditions under which none of its runs are planned."""
        return replace(self, verdicts=[one for one in self.verdicts if self.planned[one.condition].runs])

    @property
    def lines(self) -> list[list[str]]:
        """The table of parts: what is predicted, the paper's number, and what each condition says."""
        parts = dict.fromkeys(f.part.quantity for verdict in self.verdicts for f in verdict.findings)
        return [[name, *self._line(name)] for name in parts]

    def _line(self, name: str) -> list[str]:
        found = [
            (verdict, next((f for f in verdict.findings if f.part.quantity == name), None))
            for verdict in self.verdicts
        ]
        first = next(finding for _, finding in found if finding is not None).part
        predicted = first.prediction.words() + (" (premise)" if first.premise else "")
        paper = "" if first.paper is None else f"{first.paper:.1f}"
        return [predicted, paper, *("" if one is None else cell(one, verdict.word) for verdict, one in found)]


def write_replication(study: Study, rows: StudyRows, path: Path) -> Path:
    """Write the page of a study, its pictures, and every part of every claim as a table beside it (CSV).

    Args:
        study: Claims, conditions, scale, and the seeds that were planned.
        rows: What has been found.
        path: Markdown file; pictures go into a folder of its name in `images` beside it.

    Returns:
        The path.

    Raises:
        StoreError: If a file cannot be written, or a table that is not the page's lies in its place.
    """
    place, beside = RESULTS if rows.path is None else rows.path.parent, path.with_suffix(".csv")
    _require_own(beside)
    cases = zip(study.cases(), study.verdicts(rows), strict=True)
    grouped = groupby(cases, key=lambda case: case[0][0])
    jobs = {case: study.jobs_of(*case, rows) for case in study.cases()}
    every = [_section(study, rows, claim, [one for _, one in group], jobs) for claim, group in grouped]
    sections = [_illustrated(study, rows, one.where_planned(), path) for one in every if one.is_planned]
    earlier = path.read_text(encoding="utf-8") if path.exists() else ""
    _remove_others(path, earlier, {Path(picture.path).stem for one in sections for picture in one.pictures})
    planned = merged(job for case_jobs in jobs.values() for job in case_jobs)
    open_words = set[tuple[str, str]]().union(*(left_open(verdicts) for verdicts in families(sections)))
    templates = templates_of("spectrope.study", autoescape=False)
    templates.filters |= {"plain": plain, "measured": measured}
    judged = [(section.claim, verdict) for section in every for verdict in section.verdicts]
    theirs, own = ([one for one in sections if one.claim.ours == ours] for ours in (False, True))
    page = templates.get_template("replication.md").render(
        articles=list(dict.fromkeys(claim.article for claim in study.claims)),
        study=study,
        sections=sections,
        unplanned=[(one.claim, _why_not(one)) for one in every if not one.is_planned],
        budget=budget(study.scale, rows),
        edges=edges(study.scale),
        seeds=seeds_of(study),
        preplanned=[claim for claim in study.claims if claim.plan_page],
        minimum=MIN_SEEDS,
        fitted=FITTED,
        words=WORDS,
        findings=findings(study, rows),
        accuracies=accuracies(study, rows),
        columns=COLUMNS,
        control=positive_control(study, rows),
        near=NEAR,
        alike=ALIKE,
        deposits=[] if study.is_repeated else deposit_factors(study, rows),
        repeated=repeated(study, rows),
        steps=steps(study.scale),
        unnamed=unnamed(rows),
        withdrawn=list(rows.withdrawals.lines()),
        deviations=deviations(),
        rows=rows,
        machines=machines(rows),
        seconds=sum(map(core_seconds, rows)),
        missing=Planned.of(planned, rows),
        each=seconds_each(planned, rows),
        untuned=untuned(study, rows),
        shallow=shallow_layers(study),
        theirs=headline_table(theirs, study.conditions, open_words),
        notes=headline_notes(theirs),
        own=headline_table(own, study.conditions, open_words),
        own_notes=headline_notes(own),
        complaints=rows.complaints,
        table=quote(beside.name),
        place=place,
        commands=study.commands(place),
    )
    written = write_page(page, path, ".md")
    write_page(effects(judged, open_words).write_csv(), beside, ".csv")
    return written


def _require_own(table: Path) -> None:
    """Refuse to replace a table that is none of a page.

    Raises:
        StoreError: If a file of that name has other columns.
    """
    if table.exists():
        with table.open(encoding="utf-8", errors="replace") as file:
            if file.readline().strip() != ",".join(effects([], ()).columns):
                raise StoreError(f"{table} would be replaced by the page's table; choose another --out.")


def shallow_layers(study: Study) -> str:
    """The layers that claims call shallow, in words, such as "of 3, layer 0 alone"."""
    layers = shallow(study.n_layers)
    return f"of {study.n_layers}, {'layer 0 alone' if len(layers) == 1 else f'layers 0 to {layers[-1]}'}"


def headline_table(
    sections: Sequence[ClaimSection], conditions: Sequence[str], open_words: Container[tuple[str, str]]
) -> list[list[str]]:
    """A line per claim: what is claimed, the paper's sentence and its place, the paper's number, what
    decides, and the words."""
    lines = []
    for section in sections:
        claim, verdicts = section.claim, {verdict.condition: verdict for verdict in section.verdicts}
        cells = [
            headline_cell(verdicts[name], open_words) if name in verdicts else "–" for name in conditions
        ]
        quote = f" “{claim.quote}”" * bool(claim.quote)
        entry = f"{claim.number}. [{claim.title}](#{claim.kind}){quote} ({claim.source})"
        headlines = (verdict.headline for verdict in section.verdicts)
        decides = next((f"{one.part.quantity}: {_predicted(one.part)}" for one in headlines if one), "")
        lines.append([entry, claim.paper, decides, *cells])
    return lines


def _predicted(part: Part) -> str:
    return f"predicted {part.prediction.words()}"


def headline_cell(verdict: ClaimVerdict, open_words: Container[tuple[str, str]] = ()) -> str:
    """The word of a verdict, with the effect that decides it."""
    if verdict.word == "not testable here":
        return verdict.word
    finding = verdict.headline
    assert finding is not None
    mark = "†" if (verdict.claim, verdict.condition) in open_words else ""
    mark += "‡" if finding.part.untrained else ""
    return f"**{verdict.word}**{mark} {effect(finding)}"


def headline_notes(sections: Sequence[ClaimSection]) -> list[str]:
    """A line per claim: what its effects alone do not tell, condition by condition."""
    lines = []
    for section in sections:
        told: dict[str, list[str]] = {}  # Conditions of which the same is to be told.
        for verdict in section.verdicts:
            told.setdefault(headline_note(verdict), []).append(f"`{verdict.condition}`")
        notes = " ".join(f"{' and '.join(names)}: {note}." for note, names in told.items() if note)
        if notes:
            lines.append(f"{section.claim.number}. [{section.claim.title}](#{section.claim.kind}). {notes}")
    return lines


def headline_note(verdict: ClaimVerdict) -> str:
    """Why a verdict decides nothing; else what is to be known beside its effect; empty if nothing is."""
    finding = verdict.headline
    if verdict.word == "not testable here":
        exploratory = f" (exploratory: {effect(finding)})" if finding and finding.evidence else ""
        return f"not testable here: {verdict.reason.partition(';')[0]}{exploratory}"
    assert finding is not None
    unfinished = f"correct answers on training examples: {finding.part.untrained}"
    notes = (unfinished * bool(finding.part.untrained), finding.part.beside, _against(verdict))
    return "; ".join(note for note in notes if note)


def _against(verdict: ClaimVerdict) -> str:
    """How many of the other parts are contradicted, where a claim is not."""
    others = [f for f in verdict.findings if not (f.headline or f.part.premise) and f.enough]
    n = sum(finding.word == "contradicted" for finding in others)
    return f"{n} of {len(others)} other part{'s' * (len(others) != 1)} contradicted" if n else ""


def repeated(study: Study, rows: StudyRows) -> list[list[str]]:
    """A line per claim with runs on as many further seeds: its verdicts on both, under `controlled`."""
    if study.is_repeated:
        return []
    further = [seed + len(study.seeds) for seed in study.seeds]
    lines = []
    for claim in (one for one in study.claims if "controlled" in one.conditions and one.times == 1):
        first, again = (
            claim.judge(rows, "controlled", study.scale, seeds) for seeds in (study.seeds, further)
        )
        if again.word != "not testable here" and first.headline and again.headline:
            numbers = claim.numbers(further, study.scale)
            cells = [f"**{one.word}** {effect(one.headline)}" for one in (first, again) if one.headline]
            lines.append(
                [f"{claim.number}. [{claim.title}](#{claim.kind})", *cells, f"{numbers[0]} to {numbers[-1]}"]
            )
    return lines


def steps(scale: str) -> tuple[int, int, int] | None:
    """Training steps of Task 1 at a scale, and the fewest and most at `paper`; None for an unknown scale."""
    if scale not in SCALES:
        return None
    most = _steps("paper", "rope")
    return _steps(scale, "rope"), min(most, _steps("paper", "mla")), most


def _steps(scale: str, encoding: str) -> int:
    one = experiment("distance", encoding, scale=scale)
    return one.training.epochs * ceil(one.n_train / one.training.batch_size)


def families(sections: Sequence[ClaimSection]) -> list[list[ClaimVerdict]]:
    """Verdicts that are corrected together: those of one plan, so that later claims do not change others."""
    by_plan: dict[str, list[ClaimVerdict]] = {}
    for section in sections:
        by_plan.setdefault(section.claim.plan_page, []).extend(section.verdicts)
    return list(by_plan.values())


def left_open(verdicts: Sequence[ClaimVerdict]) -> set[tuple[str, str]]:
    """Claims and conditions whose verdicts are not significant after Holm's correction over all decided
    headline parts."""
    tested = [v for v in verdicts if v.headline and v.word not in ("not testable here", "saturated")]
    levels = np.array([v.headline.p for v in tested if v.headline])
    adjusted = holm(levels) if len(levels) else levels
    return {
        (v.claim, v.condition)
        for v, p in zip(tested, adjusted, strict=True)
        if p > ALPHA and v.word != "undecided"
    }


def effect(finding: PartResult) -> str:
    """Estimate, interval, unit and seeds of a part; seeds that all agree have no interval."""
    assert finding.evidence is not None
    interval = finding.evidence.interval
    estimate, low, high = (number(finding, x) for x in (interval.estimate, interval.low, interval.high))
    if interval.low * interval.high > 0:  # An end that is not 0 must not be printed as 0.
        low, high = (number(finding, end, apart=True) for end in (interval.low, interval.high))
    if finding.part.limit == "not measured":
        return (
            f"not measured: both arms are almost always right, or almost always wrong, n = {finding.n_seeds}"
        )
    limit = f"{finding.part.limit} " if finding.part.limit else ""
    if interval.low == interval.high:
        same = "tied" if finding.part.tied else f"{estimate} {finding.part.prediction.unit}"
        return f"{same} in each of {finding.n_seeds} seeds"
    level = "" if interval.level == LEVEL else f"; {100 * interval.level:.1f} % interval"
    return f"{limit}{estimate} [{low} to {high}{level}] {finding.part.prediction.unit}, n = {finding.n_seeds}"


def measured(finding: PartResult) -> str:
    """The effect of a part and what training it had; empty without an interval."""
    if finding.evidence is None:
        return ""
    unfinished = f"; training unfinished: {finding.part.untrained}" * bool(finding.part.untrained)
    note = f"; {finding.part.note}" * bool(finding.part.note)
    return f"{effect(finding)}{unfinished}{note}"


def number(finding: PartResult, value: float, *, apart: bool = False) -> str:
    """A value of a part in as many digits as its unit deserves, or as tell it apart from 0."""
    digits = 1 if finding.part.prediction.unit == "points" else 2
    while apart and digits < MOST_DIGITS and round(value, digits) == 0:
        digits += 1
    return f"{round(value, digits) + 0.0:.{digits}f}"  # Adding 0 takes the sign from -0.


def cell(finding: PartResult, word: Word) -> str:
    """Estimate and interval as the table of parts shows them; that which decides has the verdict's word."""
    told = (
        finding.part.note,
        f"training unfinished: {finding.part.untrained}" * bool(finding.part.untrained),
        f"not testable here: {finding.part.untestable}" * bool(finding.part.untestable),
    )
    note = "".join(f"; {one}" for one in told if one)
    if finding.evidence is None:
        return f"{finding.n_seeds} seed{'s' * (finding.n_seeds != 1)}" + note * bool(finding.n_seeds)
    decided = f" **{word}**" if finding.headline and word != "not testable here" else ""
    return f"{effect(finding)}{decided}{note}"


def unnamed(rows: StudyRows) -> int:
    """Rows of code that was not committed, or has no name in the history."""
    return sum(not is_named(row.facts["commit"]) for row in rows)


def _why_not(section: ClaimSection) -> str:
    """Why the plan of a scale has no runs for a claim."""
    first = section.verdicts[0]
    return first.reason.removeprefix(f"not planned at {first.scale}: ")


def seconds_each(jobs: Sequence[Job], rows: StudyRows) -> float | None:
    """Mean training time on one core of the runs of the kinds that lack rows; None if there are none yet."""
    kinds = {type(job.experiment) for job in jobs if rows.get(job.experiment) is None}
    spent = [core_seconds(row) for row in rows if type(row.experiment) in kinds]
    return fmean(spent) if spent else None


def untuned(study: Study, rows: StudyRows) -> list[int]:
    """Numbers of the claims that ask for tuned learning rates too, which no row of the study has."""
    kinds = {claim.kind for claim in study.claims}
    forms = [form for form in tuned_forms(study.claims, rows) if set(form.conditions) & set(study.conditions)]
    return sorted({form.number for form in forms if form.kind not in kinds})


def plain(text: object) -> str:
    """Text of a row, escaped for Markdown, on one line."""
    line = " ".join(html.escape(str(text), quote=False).split())
    return re.sub(r"([\\`*\[\]|])", r"\\\1", line)


def machines(rows: StudyRows) -> list[str]:
    """On what the rows were computed, each with its number of runs."""
    counts: dict[str, int] = {}
    for row in rows:
        facts = row.facts["machine"] or {}
        accelerator = facts.get("accelerator", "none")
        place = (
            accelerator if accelerator != "none" else f"{facts.get('processor')} ({facts.get('capability')})"
        )
        name = f"{place}, {row.facts['precision']}, torch {facts.get('torch')}, commit {row.facts['commit']}"
        counts[name] = counts.get(name, 0) + 1
    return [f"{count} runs: {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])]


def _section(
    study: Study,
    rows: StudyRows,
    claim: Claim,
    verdicts: Sequence[ClaimVerdict],
    jobs: Mapping[tuple[Claim, str], Sequence[Job]],
) -> ClaimSection:
    planned = {v.condition: Planned.of(jobs[claim, v.condition], rows) for v in verdicts}
    return ClaimSection(claim, list(verdicts), [], planned, study.power(claim, rows))


def _illustrated(study: Study, rows: StudyRows, section: ClaimSection, page: Path) -> ClaimSection:
    """A section with its figures as files in a folder beside the page."""
    pictures = []
    for figure in figures_of(study, rows, section.claim, section.verdicts):
        file = Path("images") / page.stem / f"{figure.drawing.name}.svg"
        figure.drawing.save(page.parent / file)
        pictures.append(Picture(quote(file.as_posix()), figure.caption))
    return replace(section, pictures=pictures)


def _remove_others(page: Path, earlier: str, names: Container[str]) -> None:
    """Remove figures of claims that an earlier version of the page showed."""
    for path in (page.parent / "images" / page.stem).glob("*.svg"):
        if NUMBERED.fullmatch(path.stem) and path.stem not in names and f"/{quote(path.name)})" in earlier:
            with disk_errors(path):
                path.unlink()
