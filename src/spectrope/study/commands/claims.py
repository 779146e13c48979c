"""`spectrope claims`: test the statements of the papers."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import subcommand

from spectrope.console import ROOT, RunsRoot, console, print_json, say, table
from spectrope.figures import check_page
from spectrope.study import page
from spectrope.study.claim import Claim, chosen_claims
from spectrope.study.claims.tuned import tried_claims, tuned_forms
from spectrope.study.commands._audit import AuditRows
from spectrope.study.commands._common import (
    Asked,
    Conditions,
    existing_rows,
    gather,
    load_rows,
    scope_of,
    verdict_records,
)
from spectrope.study.commands._pilots import RunPilots
from spectrope.study.commands._publish import PublishStudy
from spectrope.study.commands._run import RunClaims
from spectrope.study.commands._show import ShowClaim
from spectrope.study.conditions import THROWN
from spectrope.study.pilots import require_frozen
from spectrope.study.verdict import ClaimVerdict


@dataclass(frozen=True, kw_only=True)
class List(Asked):
    """List the claims and their verdicts so far.

    Examples:
    $ spectrope claims list
    $ spectrope claims list 1 7
    """

    def run(self) -> None:
        """Print a row per claim."""
        rows, study = existing_rows(self.rows, self.scale), self.study(chosen_claims(self.names))
        by_claim: dict[Claim, list[str]] = {claim: [] for claim in study.claims}
        for (claim, condition), verdict in zip(study.cases(), study.verdicts(rows), strict=True):
            by_claim[claim].append(f"{condition}: {_listed(verdict)}")
        lines = [(f"{one.number} {one.kind}", one.title, "\n".join(by_claim[one])) for one in study.claims]
        table(scope_of(self.scale), ("claim", "says", "verdict, seeds"), lines)
        if self.json:
            print_json(verdict_records(study, rows))


@dataclass(frozen=True, kw_only=True)
class Harvest(Asked):
    """Add results that claims need from finished runs, such as those of `spectrope compare`.

    Examples:
    $ spectrope claims harvest
    $ spectrope claims harvest --runs elsewhere/runs
    """

    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Add rows, and name the runs that cannot be read."""
        require_frozen(self.scale)
        rows, claims = load_rows(self.rows, self.scale), chosen_claims(self.names)
        n_new = gather(self.runs, self.study([*claims, *tuned_forms(claims, rows)]), rows)
        if self.json:
            print_json({"new_rows": n_new, "rows": len(rows)})


@dataclass(frozen=True, kw_only=True)
class ReportClaims(Asked):
    """Write a page with verdicts and figures of some claims from the stored results.

    Examples:
    $ spectrope claims report
    $ spectrope claims report 1 --seeds 6:12 --out fresh.md
    """

    conditions: Conditions = tuple(THROWN)
    out: Annotated[Path, tyro.conf.arg(help="Markdown file to write.")] = Path("replication.md")

    def run(self) -> None:
        """Write the page and print its path last."""
        check_page(self.out, ".md")
        claims = chosen_claims(self.names)
        with console.status("Testing the claims and drawing their figures"):
            rows = existing_rows(self.rows, self.scale)
            page.write_replication(
                self.study(tried_claims(claims, rows, self.scale), self.conditions), rows, self.out
            )
        say(f"Wrote {self.out.resolve()}")
        if self.json:
            print_json({"path": str(self.out.resolve())})


ClaimsAction = (
    Annotated[List, subcommand("list")]
    | Annotated[ShowClaim, subcommand("show")]
    | Annotated[RunPilots, subcommand("pilots")]
    | Annotated[RunClaims, subcommand("run")]
    | Annotated[Harvest, subcommand("harvest")]
    | Annotated[ReportClaims, subcommand("report")]
    | Annotated[PublishStudy, subcommand("publish")]
    | Annotated[AuditRows, subcommand("audit")]
)


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Test the papers' claims, with and without confounds.

    Examples:
    $ spectrope claims list
    $ spectrope claims run 1 --dry-run
    """

    action: ClaimsAction

    def run(self) -> int:
        """Do what is asked, and return the exit code."""
        return self.action.run() or 0


def _listed(verdict: ClaimVerdict) -> str:
    """Word and number of seeds of a verdict, or in short why there is none, such as "not run"."""
    if verdict.word == "not testable here":
        return re.split(r"[;:]| \(", verdict.reason)[0]
    return f"{verdict.word}, {verdict.n_seeds}"
