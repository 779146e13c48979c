"""`spectrope claims audit`: whether rows are younger than the plan, and made in its order."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from textwrap import shorten

from spectrope.console import JsonOption, ScaleOption, complain, print_json, say, table
from spectrope.core import ConfigError
from spectrope.study.audit import audit
from spectrope.study.commands._common import Results
from spectrope.study.plan import plan
from spectrope.study.rows import StudyRows
from spectrope.study.schedule import out_of_turn
from spectrope.study.study import RESULTS

FEW_NAMED = 3  # Runs that are named of each kind.
WIDEST = 30  # Characters of a commit's subject; `--json` has all.


@dataclass(frozen=True, kw_only=True)
class AuditRows:
    """Check by commits and hashes that the plan predates the results, and list later versions of the plan.

    Examples:
    $ spectrope claims audit
    $ spectrope claims audit --scale mini
    """

    scale: ScaleOption = "mid"
    rows: Results = RESULTS
    json: JsonOption = False

    def run(self) -> int:
        """Print the plan's versions and what the rows' commits say.

        Returns:
            The exit code: 1 if rows of a planned scale are not all younger than the plan, or if some were
            removed, changed or repeated.

        Raises:
            ConfigError: If there is no such folder.
            StoreError: If the history or the rows cannot be read.
        """
        if not self.rows.is_dir():
            raise ConfigError(f"--rows {self.rows} is not a folder.")
        audited = audit(self.rows / f"{self.scale}.jsonl")
        if self.json:
            print_json(asdict(audited) | {"scale": self.scale, "passes": audited.passes})
        if not (audited.rows or audited.removed):
            say(f"There are no rows at {self.scale} yet; all there is to list are the versions of the plan.")
        columns = ("SHA-256", "commit", "date", "runs finished by then", "subject")
        table(
            "Versions of the plan, and runs made under each",
            (*columns[:4], "runs", "subject"),
            [
                (
                    one.digest,
                    one.commit,
                    one.when[:10],
                    str(one.rows),
                    str(audited.under.get(one.digest, 0)),
                    shorten(one.subject, WIDEST, placeholder=" …"),
                )
                for one in audited.versions
            ],
        )
        if audited.analysis:
            table(
                "Versions of the analysis since the first row",
                columns,
                [
                    (
                        one.digest,
                        one.commit,
                        one.when[:10],
                        str(one.rows),
                        shorten(one.subject, WIDEST, placeholder=" …"),
                    )
                    for one in audited.analysis
                ],
            )
        if not (audited.rows or audited.removed):
            return 0
        say(
            f"{audited.rows} runs at {self.scale}: {audited.unnamed} of uncommitted or unnamed code, "
            f"{audited.unknown} of commits that are not in this repository, {audited.before} of commits "
            f"without the plan. {audited.waiting} rows are not yet committed; {audited.misplaced} contradict "
            "the history: their commit is not an ancestor of the one that added them, or they ended before "
            "the former, or after the latter or the present. "
            f"{audited.unchosen} were made before the plan had the choice of its pilots."
        )
        if audited.laboratory:
            versions = ", ".join(f"{digest} ({n} runs)" for digest, n in audited.laboratory.items())
            say(f"Versions of the code that trains and measures: {versions}.")
        for what, runs in (
            ("removed or changed later", audited.removed),
            ("given several results", audited.repeated),
        ):
            if runs:
                say(f"{_some(runs)}: rows that were {what}, and that no deviation names.")
        if audited.unsaved:
            say(f"{_some(audited.unsaved)}: files of the plan or of the analysis that are not committed.")
        late = out_of_turn(StudyRows.load(self.rows / f"{self.scale}.jsonl"), self.scale)
        if late:
            labels = _some([row.experiment.label for row in late])
            say(f"Ended before an earlier run of the plan began, or without it: {labels}.")
        if self.scale not in plan():
            say(f"The plan does not cover {self.scale}: all of these are exploratory.")
        elif not audited.passes:
            complain(
                f"some rows at {self.scale} were not made by a clean commit that contains the plan, or were "
                "removed, changed or repeated."
            )
            return 1
        else:
            say(
                "Each row names a clean commit that contains the plan, and the history of the file of rows "
                "does not contradict it. An audit cannot see runs that were made and not recorded."
            )
        return 0


def _some(names: Sequence[str]) -> str:
    """The first few of some names, and the number of the others."""
    more = f" and {len(names) - FEW_NAMED} more" if len(names) > FEW_NAMED else ""
    return f"{', '.join(names[:FEW_NAMED])}{more}"
