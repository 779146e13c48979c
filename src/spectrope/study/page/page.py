"""The page itself, as Markdown, with its pictures beside it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from urllib.parse import quote

from spectrope.figures import Panel, panels_spec, templates_of, write_page, write_spec
from spectrope.lab import Job
from spectrope.stats import MIN_SEEDS
from spectrope.study.claim import Claim
from spectrope.study.claims.tuned import tuned_forms
from spectrope.study.page.extras.base import EXTRAS
from spectrope.study.page.forest import SPARED, WIDTH, forest
from spectrope.study.predictions import ALPHA, LEVEL
from spectrope.study.quantities import shallow
from spectrope.study.rows import StudyRows
from spectrope.study.study import RESULTS, Study, merged, outstanding
from spectrope.study.verdict import ClaimVerdict, PartResult

WORDS = (  # Of parts, by outcome: of one, of several.
    ("holds", "holds", "hold"),
    ("fails", "fails", "fail"),
    ("inconclusive", "open", "open"),
    ("lacks", "lacks seeds", "lack seeds"),
)
FOREST = (
    "Points: seeds. Bars: intervals, of 95 % unless the table tells another level. Ticks: smallest effects "
    "of interest. Diamonds: the paper."
)


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
    """How much of a plan there is.

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
class Section:
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
    def lines(self) -> list[list[str]]:
        """The table of parts: what is predicted, the paper's number, and what each condition says."""
        parts = dict.fromkeys(f.part.quantity for verdict in self.verdicts for f in verdict.findings)
        return [[name, *self._line(name)] for name in parts]

    def _line(self, name: str) -> list[str]:
        findings = [
            next((f for f in verdict.findings if f.part.quantity == name), None) for verdict in self.verdicts
        ]
        first = next(finding for finding in findings if finding is not None).part
        predicted = first.prediction.words() + (" (premise)" if first.premise else "")
        paper = "" if first.paper is None else f"{first.paper:.1f}"
        return [predicted, paper, *("" if one is None else cell(one) for one in findings)]


def write_replication(study: Study, rows: StudyRows, path: Path) -> Path:
    """Write the page of a study and its pictures.

    Args:
        study: Claims, conditions, scale, and the seeds that were planned.
        rows: What has been found.
        path: Markdown file; pictures go into a folder of its name in `images` beside it.

    Returns:
        The path.

    Raises:
        StoreError: If a file cannot be written.
    """
    place = RESULTS if rows.path is None else rows.path.parent
    cases = zip(study.cases(), study.verdicts(rows), strict=True)
    grouped = groupby(cases, key=lambda case: case[0][0])
    jobs = {case: study.jobs_of(*case, rows) for case in study.cases()}
    sections = [
        _section(study, rows, claim, [verdict for _, verdict in group], jobs, path)
        for claim, group in grouped
    ]
    planned = merged(job for case_jobs in jobs.values() for job in case_jobs)
    template = templates_of("spectrope.study", autoescape=False).get_template("replication.md")
    page = template.render(
        articles=list(dict.fromkeys(claim.article for claim in study.claims)),
        study=study,
        sections=sections,
        minimum=MIN_SEEDS,
        alpha=f"{ALPHA:.3g}",
        rows=rows,
        machines=machines(rows),
        seconds=sum(row.facts["seconds"] or 0.0 for row in rows),
        missing=Planned.of(planned, rows),
        each=seconds_each(planned, rows),
        untuned=untuned(study, rows),
        shallow=shallow_layers(study),
        overview=[(section.claim, overview(study, section)) for section in sections],
        complaints=rows.complaints,
        place=place,
        commands=study.commands(place),
    )
    return write_page(page, path, ".md")


def shallow_layers(study: Study) -> str:
    """The layers that claims call shallow, in words, such as "of 3, layer 0 alone"."""
    layers = shallow(study.n_layers)
    return f"of {study.n_layers}, {'layer 0 alone' if len(layers) == 1 else f'layers 0 to {layers[-1]}'}"


def overview(study: Study, section: Section) -> list[str]:
    """Cells of the verdict table: an outcome per condition, then what decides the first that is decided."""
    by_condition = {verdict.condition: verdict for verdict in section.verdicts}
    marks = ["–" if name not in by_condition else mark(by_condition[name]) for name in study.conditions]
    decided = (verdict for verdict in section.verdicts if verdict.outcome != "inconclusive")
    return [*marks, next((decisive(verdict) for verdict in decided), "")]


def mark(verdict: ClaimVerdict) -> str:
    """An outcome in a few words: in bold where it is one, else what is lacking; and how its parts go."""
    if not any(finding.n_seeds for finding in verdict.findings):
        return verdict.reason.partition(";")[0]
    if verdict.outcome == "holds":
        return "**holds**"
    if verdict.outcome == "inconclusive" and verdict.n_seeds < MIN_SEEDS:
        return f"{verdict.n_seeds} of {MIN_SEEDS} seeds"
    parts = [finding for finding in verdict.findings if not finding.part.premise]
    outcome = "**fails**" if verdict.outcome == "fails" else "inconclusive"
    if len(parts) < 2:
        return outcome
    counts = Counter(finding.outcome if finding.enough else "lacks" for finding in parts)
    told = [
        f"{counts[name]} {one if counts[name] == 1 else several}"
        for name, one, several in WORDS
        if counts[name] > 0
    ]
    return f"{outcome}: {', '.join(told)}"


def decisive(verdict: ClaimVerdict) -> str:
    """The part that a verdict rests on, with its number: the surest failure, or the least sure success."""
    parts = [
        f for f in verdict.findings if f.outcome == verdict.outcome and f.evidence and not f.part.premise
    ]
    if verdict.outcome == "fails":
        told = min(parts, key=lambda finding: finding.p_fails)
    else:
        told = max(parts, key=lambda finding: finding.evidence.p_holds if finding.evidence else 0.0)
    assert told.evidence is not None
    value = number(told, told.evidence.interval.estimate)
    return f"{told.part.quantity}: {value}, predicted {told.part.prediction.words()} (`{verdict.condition}`)"


def number(finding: PartResult, value: float) -> str:
    """A value of a part in as many digits as its unit deserves."""
    return f"{value:{'.1f' if finding.part.prediction.unit == 'points' else '.2f'}}"


def cell(finding: PartResult) -> str:
    """Estimate and interval with the outcome, as a table shows them."""
    note = f"; {finding.part.note}" if finding.part.note else ""
    if finding.evidence is None:
        return f"{finding.n_seeds} seed{'s' * (finding.n_seeds != 1)}" + note * bool(finding.n_seeds)
    interval = finding.evidence.interval
    level = "" if interval.level == LEVEL else f" at {100 * interval.level:.1f} %"
    estimate, low, high = (number(finding, x) for x in (interval.estimate, interval.low, interval.high))
    spared = f" ({SPARED}: p = {finding.p_fails:.3g})" if finding.spared else ""
    return f"{estimate} [{low} to {high}]{level} {finding.outcome}{spared}, n = {finding.n_seeds}{note}"


def seconds_each(jobs: Sequence[Job], rows: StudyRows) -> float | None:
    """Mean training time of the runs of the kinds that lack rows; None if there is none of them yet."""
    kinds = {type(job.experiment) for job in jobs if rows.get(job.experiment) is None}
    known = [row.facts["seconds"] or 0.0 for row in rows if type(row.experiment) in kinds]
    return fmean(known) if known else None


def untuned(study: Study, rows: StudyRows) -> list[int]:
    """Numbers of the claims that ask for tuned learning rates too, which no row of the study has."""
    kinds = {claim.kind for claim in study.claims}
    forms = [form for form in tuned_forms(study.claims, rows) if set(form.conditions) & set(study.conditions)]
    return sorted({form.number for form in forms if form.kind not in kinds})


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
    page: Path,
) -> Section:
    planned = {v.condition: Planned.of(jobs[claim, v.condition], rows) for v in verdicts}
    pictures = _pictures(study, rows, claim, verdicts, page)
    return Section(claim, list(verdicts), pictures, planned, study.power(claim, rows))


def _pictures(
    study: Study, rows: StudyRows, claim: Claim, verdicts: Sequence[ClaimVerdict], page: Path
) -> list[Picture]:
    """The parts of a claim, and its extra figure where it has one."""
    name = f"{claim.number}-{claim.kind}"
    parts = forest(verdicts)
    pictures = _picture(page, name, FOREST, parts, WIDTH, len({panel.title for panel in parts}))
    if claim.kind in EXTRAS:
        extra = EXTRAS[claim.kind]
        panels = extra.panels({v.condition: study.seen(claim, v.condition, rows) for v in verdicts})
        pictures += _picture(page, f"{name}-more", extra.caption, panels, extra.width, extra.columns)
    return pictures


def _picture(
    page: Path, stem: str, caption: str, panels: Sequence[Panel], width: int, columns: int = 3
) -> list[Picture]:
    """Panels as a file beside the page; nothing where there are no panels."""
    if not panels:
        return []
    file = Path("images") / page.stem / f"{stem}.svg"
    write_spec(panels_spec(panels, width, columns, colours="shared"), page.parent / file)
    return [Picture(quote(file.as_posix()), caption)]
