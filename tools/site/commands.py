"""Reference of the commands: a page per command, from the same records as `--help`."""

from spectrope.cli.catalogue import ROOMS, commands
from spectrope.cli.help import Option, Page
from spectrope.cli.help import pages as help_pages


def pages() -> dict[str, str]:
    """Pages in Markdown, by their path without suffix."""
    known = help_pages()
    written = {f"reference/commands/{name}": _page(f"spectrope {name}", page) for name, page in known.items()}
    return {"reference/commands/index": _index(known), **written}


def _index(known: dict[str, Page]) -> str:
    groups = {group: [one for one in commands().values() if one.group == group] for group in ROOMS.values()}
    parts = [
        "# Commands",
        "`spectrope COMMAND --help` prints the same, from the same parsers; options marked *rare* are in "
        "`--help-all` alone.",
    ]
    for group, members in groups.items():
        if not members:
            continue
        lines = [
            f"| [`spectrope {one.name}`]({one.name}.md) | {known[one.name].summary} |" for one in members
        ]
        parts += [f"## {group}", "\n".join(("| command | what it is for |", "| --- | --- |", *lines))]
    listed = "\n".join(known)
    return "\n\n".join((*parts, f"```{{toctree}}\n:hidden:\n\n{listed}\n```")) + "\n"


def _page(typed: str, page: Page) -> str:
    parts = [f"# `{typed}`", *_body(typed, page)]
    for name, action in page.actions.items():
        parts += [f"## `{typed} {name}`", *_body(f"{typed} {name}", action)]
    return "\n\n".join(parts) + "\n"


def _body(typed: str, page: Page) -> list[str]:
    parts = [page.summary, f"```console\n$ {page.usage(typed).removeprefix('usage: ')}\n```"]
    if page.examples:
        parts += ["Examples:", "```console\n" + "\n".join(f"$ {one}" for one in page.examples) + "\n```"]
    if page.options:
        lines = [_line(option) for option in page.options]
        parts.append("\n".join(("| option | default | what it does |", "| --- | --- | --- |", *lines)))
    return parts


def _line(option: Option) -> str:
    head = f"{option.name} {option.value}".strip().replace("|", "\\|")
    text = option.text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    default = f"`{option.default}`" if option.default else ""
    return f"| `{head}` | {default} | {text}{' *rare*' if option.rare else ''} |"
