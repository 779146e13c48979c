"""`spectrope claims show`: one claim with its verdicts."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from spectrope.console import JsonOption, ScaleOption, print_json, say, table
from spectrope.study import page
from spectrope.study.claim import Claim, chosen_claims
from spectrope.study.claims.tuned import tried_claims
from spectrope.study.commands._common import Asked, Results, existing_rows, scope_of
from spectrope.study.rows import StudyRows
from spectrope.study.study import RESULTS, Study
from spectrope.study.verdict import ClaimVerdict


@dataclass(frozen=True, kw_only=True)
class ShowClaim:
    """Print one claim: what it says, what decides it, and its verdict under each condition.

    Examples:
    $ spectrope claims show 7
    $ spectrope claims show dropout --json
    """

    claim: Annotated[tyro.conf.Positional[str], tyro.conf.arg(help="Name or number of a claim.")]
    scale: ScaleOption = "mini"
    rows: Results = RESULTS
    json: JsonOption = False

    def run(self) -> None:
        """Print it; a number that several claims share prints each."""
        rows = existing_rows(self.rows, self.scale)
        chosen = chosen_claims((self.claim,))
        study = Asked(scale=self.scale).study(tried_claims(chosen, rows, self.scale))
        judged = list(zip((claim for claim, _ in study.cases()), study.verdicts(rows), strict=True))
        for claim in study.claims:
            show(study, claim, [verdict for one, verdict in judged if one is claim], rows)
        if self.json:
            print_json(page.effects(judged).to_dicts())


def show(study: Study, claim: Claim, verdicts: list[ClaimVerdict], rows: StudyRows) -> None:
    """Print the card of a claim."""
    say(f"{claim.number}. {claim.title} ({claim.kind})")
    say(f"Statement: {claim.statement} ({claim.source}.)")
    say(f"Prediction{' of ours' if claim.ours else ''}: {claim.prediction}.")
    say(f"Paper: {claim.paper}.")
    decides = next((one.headline.part.quantity for one in verdicts if one.headline), "none yet")
    say(f"Decided by: {decides}.")
    say(f"Power: {study.power(claim, rows)}")
    lines = [(one.condition, one.word, _effect_of(one), one.reason) for one in verdicts]
    columns = ("condition", "verdict", "effect", "why")
    table(scope_of(study.scale), columns, lines)
    for one in verdicts:  # Where nothing is decided, the table says why.
        note = page.headline_note(one, page.without_one_seed(study, claim, one, rows))
        if one.word != "not testable here" and note:
            say(f"Beside the effect, {one.condition}: {note}.")


def _effect_of(verdict: ClaimVerdict) -> str:
    headline = verdict.headline
    return page.effect(headline) if headline and headline.evidence else "–"
