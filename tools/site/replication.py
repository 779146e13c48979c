"""The replication pages, which are long: one page per claim, under one that has the tables of all."""

import re

# The contents beside a page would take the width that its tables need, so they stand below its title.
WIDE = "---\nhtml_theme.sidebar_secondary.remove: true\n---\n"
CONTENTS = "```{contents}\n:local:\n:depth: 1\n:backlinks: none\n```"
OTHERS = {"-fresh": " (new seeds)", "-mid": " (scale mid)"}  # How titles of claims tell pages apart.
CLAIM = re.compile(r'<a id="([a-z0-9-]+)"></a>\n## (.*?)(?=\n<a id=|\n## |\Z)', re.DOTALL)


def split(name: str, text: str) -> dict[str, str]:
    """Pages in Markdown by their path without suffix.

    Args:
        name: Path of the page without suffix, such as `explanation/replication`.
        text: The page, in which `<a id="KIND"></a>` stands before the heading of each claim.
    """
    folder = name.rpartition("/")[2]
    fresh = next((words for end, words in OTHERS.items() if folder.endswith(end)), "")
    claims = {found[1]: found[2].strip() for found in CLAIM.finditer(text)}
    head = CLAIM.sub("", text)
    for kind in claims:
        head = head.replace(f"](#{kind})", f"]({folder}/{kind}.md)")
    listed = "\n".join(f"{folder}/{kind}" for kind in claims)
    toctree = f"```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    title, _, body = head.rstrip().partition("\n")
    return {
        name: f"{WIDE}{title}\n\n{CONTENTS}\n{body}\n\n{toctree}",
        **{f"{name}/{k}": _page(k, v, claims, fresh) for k, v in claims.items()},
    }


def _page(kind: str, section: str, claims: dict[str, str], fresh: str) -> str:
    """The page of a claim, whose pictures and neighbours lie where the whole page has them."""
    title, _, body = section.partition("\n")
    body = body.replace("](images/", "](../images/")
    for other in claims:
        body = body.replace(f"](#{other})", f"]({other}.md)")
    return f"# {title}{fresh}\n{body}\n"
