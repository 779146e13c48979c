"""What was measured of changed heads, and what follows, in words."""

import polars as pl

from spectrope.checkpoints.ablation.calls import CallMethod, Calls

MEANS = "means over sequences of each one's mean over its tokens"


def intact_in_words(calls: Calls, sequences: int, length: int) -> str:
    """Accuracy and loss of the intact model, and on what."""
    loss, accuracy = calls.intact.mean(0)
    used = len(calls.intact)
    some = f"{used} of {sequences} sequences, drawn at random," if used < sequences else f"{used} sequences"
    return (
        f"The intact model has accuracy {100 * accuracy:.1f} % and loss {loss:.3g} nats per token on {some} "
        f"of up to {length} tokens ({MEANS})"
    )


def intervals_in_words(method: CallMethod, thing: str, sequences: int) -> str:
    """What the intervals of a method say."""
    if method.endswith("adaptive"):
        return (
            f"95 % intervals for the drop over all {sequences} sequences that hold for all {thing}s at once "
            "and at any stopping time"
        )
    return f"a 95 % interval over sequences for each {thing}"


def flat_in_words(table: pl.DataFrame, things: str, low: str = "low", high: str = "high") -> str:
    """What an interval over sequences says that has no width, if the table has one."""
    flat = table.filter(pl.col(low) == pl.col(high)).height
    if not flat:
        return ""
    return (
        f"For {flat} of {len(table)} {things} the accuracy of all sequences changes alike, most often not at "
        "all, so that its interval has no width. It does not show that other sequences would not change."
    )


def ceiling_in_words(calls: Calls, sequences: int, threshold: float) -> str:
    """What follows if the model is hardly ever right."""
    if len(calls.intact) < sequences or 100 * float(calls.intact[:, 1].mean()) > threshold:
        return ""
    return f"No change can cost more than {threshold:g} points, because the accuracy is not higher."


def screening_in_words(calls: Calls, method: CallMethod, things: str) -> str:
    """What is known of the changes that screening left out."""
    if not method.startswith("screened"):
        return ""
    controls = calls.controls
    if controls is None:
        return f"Screening left no {things} out: there are few, or many cost."
    given = "If the intervals hold, then with" if method.endswith("adaptive") else "With"
    return (
        f"{controls.left} of {len(calls.table)} {things}, grey in figures, were not measured, because their "
        "first-order effects, which are estimates, are small. Another "
        f"{controls.n} {things} with small effects were drawn at random and measured: none costs more than "
        f"the threshold. {given} 95 % confidence, at most {controls.most()} of the {controls.left} {things} "
        "not measured do, on these sequences."
    )
