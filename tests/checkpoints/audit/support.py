"""What the audit reads of every text family: `python -m tests.checkpoints.audit.support` writes the page."""

import sys
import warnings
from collections import Counter
from pathlib import Path

import transformers
from tests.checkpoints.audit.zoo import DTYPES, LENGTH, Variant, build, families

from spectrope.checkpoints.audit import Audit, audit
from spectrope.core import SpectropeError

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "families.md"
HEADS = {"causal": "causal", "masked": "masked", "seq2seq": "two stacks", "base": "body alone"}
HEADER = """# Families that the audit reads

Small models of every text family of transformers {version}, built from their configuration classes with
random weights and audited at length {length} in float32, bfloat16 and float16, without a change: {counts}.
`python -m tests.checkpoints.audit.support` writes this page.

| family | built as | audit | what is not read, or why it is refused |
| --- | --- | --- | --- |
"""


def row(family: str, head: str) -> tuple[str, str]:
    """The word for a family's support, and what is missing."""
    try:
        models = [build(Variant(family, head, dtype=dtype)) for dtype in DTYPES]
    except Exception as error:  # the library's own classes may lack what their default configuration needs
        return "not built", f"{type(error).__name__} in the library, with this page's small sizes"
    try:
        found = [audit(model, length=LENGTH, serving_modes=False) for model in models]
    except SpectropeError as error:
        return "refused", str(error)
    return next((word for one in found if (word := judged(one))[0] != "audited"), ("audited", ""))


def judged(found: Audit) -> tuple[str, str]:
    """The word for one audit, and what is missing in it."""
    if found.outcome == "differs":
        return "differs", "; ".join(sorted({str(finding) for _, finding in found.findings}))
    missing = [layer.reason for layer in (*found.layers, *found.decays) if layer.reason]
    missing += (
        ["positions of the embeddings"] if {one.verdict for one in found.absolutes} - {"matches"} else []
    )
    missing += [_unread(found)] if found.unread else []
    missing += [f"not exercised: {', '.join(found.unexercised)}"] if found.unexercised else []
    missing += ["layers without softmax attention"] if found.without else []
    return ("partly", "; ".join(dict.fromkeys(missing))) if missing else ("audited", "")


def _unread(found: Audit) -> str:
    """What of the layers' attention is not read."""
    read = {layer.module for layer in found.layers}
    if read >= {*found.unread}:
        return "a further softmax in some layers, of an unsupported form"
    return "an unsupported form of attention in some layers"


def page() -> str:
    """The whole page."""
    rows = {family: (head, *row(family, head)) for family, head in families().items()}
    counts = Counter(word for _, word, _ in rows.values())
    told = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    header = HEADER.format(version=transformers.__version__, length=LENGTH, counts=told)
    cells = ((family, HEADS[head], word, why.replace("|", "")) for family, (head, word, why) in rows.items())
    lines = (f"| `{family}` | {head} | {word} | {why} |" for family, head, word, why in cells)
    return header + "\n".join(lines) + "\n"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
