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

from spectrope.core import StoreError
from spectrope.figures import templates_of, write_page
from spectrope.lab import SCALES, Job, experiment
from spectrope.stats import MIN_SEEDS
from spectrope.store import disk_errors
from spectrope.study.arms import FEW, FITTED
from spectrope.study.claim import Claim
from spectrope.study.claims.tuned import tuned_forms
from spectrope.study.page.accuracies import COLUMNS, accuracies, seeds_of
from spectrope.study.page.cells import effect, measured
from spectrope.study.page.control import ALIKE, NEAR, positive_control
from spectrope.study.page.core_hours import budget, edges
from spectrope.study.page.deposits import deposit_factors
from spectrope.study.page.effects import KEYS, effects
from spectrope.study.page.findings import findings
from spectrope.study.page.headline import headline_notes, headline_table, without_one_seed
from spectrope.study.page.pictures import figures_of
from spectrope.study.page.sections import ClaimSection, Picture, Planned, families, left_open
from spectrope.study.plan import deviations, is_named
from spectrope.study.quantities import shallow
from spectrope.study.rows import StudyRows
from spectrope.study.schedule import core_seconds
from spectrope.study.study import RESULTS, Study, merged
from spectrope.study.verdict import WORDS, ClaimVerdict

NUMBERED = re.compile(r"\d+-[a-z0-9-]+")  # Names of figures of claims.


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
        few=FEW,
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
        ahead=Ahead.of(planned, rows),
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
        StoreError: If a file of that name begins with other columns.
    """
    if table.exists():
        with table.open(encoding="utf-8", errors="replace") as file:
            if not file.readline().startswith(",".join(KEYS)):
                raise StoreError(f"{table} would be replaced by the page's table; choose another --out.")


def shallow_layers(study: Study) -> str:
    """The layers that claims call shallow, in words, such as "of 3, layer 0 alone"."""
    layers = shallow(study.n_layers)
    return f"of {study.n_layers}, {'layer 0 alone' if len(layers) == 1 else f'layers 0 to {layers[-1]}'}"


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


def unnamed(rows: StudyRows) -> int:
    """Rows of code that was not committed, or has no name in the history."""
    return sum(not is_named(row.facts["commit"]) for row in rows)


def _why_not(section: ClaimSection) -> str:
    """Why the plan of a scale has no runs for a claim."""
    first = section.verdicts[0]
    return first.reason.removeprefix(f"not planned at {first.scale}: ")


@dataclass(frozen=True)
class Ahead:
    """What the planned runs without a row will take, as far as rows of their kind tell.

    Args:
        runs: Those of a kind that has rows.
        seconds: All of their training on one core, by the mean of the rows of each kind.
    """

    runs: int
    seconds: float

    @classmethod
    def of(cls, jobs: Sequence[Job], rows: StudyRows) -> "Ahead":
        """Look up each job."""
        spent: dict[type, list[float]] = {}
        for row in rows:
            spent.setdefault(type(row.experiment), []).append(core_seconds(row))
        kinds = [type(job.experiment) for job in jobs if rows.get(job.experiment) is None]
        means = [fmean(spent[kind]) for kind in kinds if kind in spent]
        return cls(len(means), sum(means, 0.0))


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
    fewer = {verdict.condition: without_one_seed(study, claim, verdict, rows) for verdict in verdicts}
    return ClaimSection(claim, list(verdicts), [], planned, study.power(claim, rows), fewer)


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
