"""Parse the docstrings of encodings and their parts, for the catalogue."""

import re


def documented(docstring: str | None) -> dict[str, str]:
    """The summary, formula and reference that a class's docstring gives."""
    text = re.sub(r"\s+", " ", docstring or "")
    formula = re.search(r":math:`(.+?)`", text)
    reference = re.search(r"References: (.+)", text)
    return {
        "summary": re.split(r"(?<=[.:]) ", text.strip())[0],
        "formula": formula.group(1) if formula else "",
        "reference": reference.group(1).strip() if reference else "",
    }
