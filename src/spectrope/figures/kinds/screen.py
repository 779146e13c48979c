"""First-order estimates against exact drops."""

import altair as alt
import polars as pl

from spectrope.figures.base import Figure, Marks, Panel, exact, rows
from spectrope.figures.kinds.measured import above, by_encoding, ordinal, worded
from spectrope.figures.tables import Tables
from spectrope.stats import rank_correlation

FEWEST = 4  # Heads of which there is a rank correlation.


class ScreenFigure(Figure, name="screen"):
    """The first-order estimate of each head against its exact drop."""

    title = "Screening against exact drops"
    place = 25
    needs = "screen"
    width = 240
    columns = 4

    def panels(self, tables: Tables) -> list[Panel]:
        """A panel per setting and encoding with a point per head."""
        return by_encoding(tables, tables.screen, _layers)

    def caption(self, tables: Tables) -> str:
        """How to read it."""
        return (
            "One point per head: the increase of the loss from its removal, estimated by one forward and "
            "one backward pass, against the measured drop in accuracy, in points. ρ is Spearman's rank "
            "correlation "
            "over heads with its 95 % bootstrap interval, for each seed."
        )


def _layers(part: pl.DataFrame) -> dict[str, Marks]:
    values = rows(part.drop("run", "setting"), "loss_increase_estimate", "drop")
    y = alt.Y("drop:Q", title="drop, points", scale=above(row["drop"] for row in values))
    x = alt.X("loss_increase_estimate:Q", title="loss increase (estimate), nats")
    whole = [alt.Tooltip(f"{name}:Q", format="d") for name in ("seed", "layer", "head")]
    numbers = [exact("loss_increase_estimate", "estimate, nats", ".4f"), exact("drop", "drop, points")]
    colour = ordinal("layer", "layer", sorted(set(part["layer"])), symbolType="circle", symbol_size=50)
    dots = alt.Chart().mark_circle(size=38, opacity=0.85)
    return {
        "heads": Marks(values, dots.encode(x=x, y=y, color=colour, tooltip=[*whole, *numbers])),
        "words": worded(_words(pl.DataFrame(values)) if values else ""),
    }


def _words(heads: pl.DataFrame) -> str:
    """The rank correlation of each seed, a line each."""
    by_seed = heads.partition_by("seed", maintain_order=True)
    return "\n".join(f"seed {part['seed'][0]}: ρ {_rho(part)}" for part in by_seed)


def _rho(heads: pl.DataFrame) -> str:
    if len(heads) < FEWEST:
        return "undefined"
    correlation = rank_correlation(heads["loss_increase_estimate"].to_numpy(), heads["drop"].to_numpy())
    if correlation is None:
        return "undefined"
    return f"{correlation.rho.estimate:z.2f} [{correlation.rho.low:z.2f}, {correlation.rho.high:z.2f}]"
