"""Scripts that complete commands, options and their values in a shell."""

import json
import shlex
from collections.abc import Iterator

from spectrope.cli.catalogue import commands
from spectrope.cli.help import FILE, Option, Page
from spectrope.cli.static import members
from spectrope.core import UnknownNameError

NAMED = {  # Options that take names, and where these are.
    **dict.fromkeys(("--encoding", "--encodings"), "spectrope.encodings"),
    "--tasks": "spectrope.tasks",
}
ALWAYS = ("--help", "--help-all", "--quiet", "--verbose", "--version")
BASH = """\
# Completion of spectrope for bash, and for zsh, which can read such scripts.
_spectrope() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local typed="${{COMP_WORDS[1]}}" words="" taken=""
  if [[ $COMP_CWORD -gt 2 && " {grouped} " == *" $typed "* ]]; then typed="$typed ${{COMP_WORDS[2]}}"; fi
  if [[ $COMP_CWORD -eq 1 ]]; then words="{first}"; else
    case "$typed $before" in
{values}
    esac
    case "$typed $before" in
{taking}) taken=yes;;
    esac
    if [[ -z $words && -z $taken && ( $word == -* || " {grouped} " == *" $typed "* ) ]]; then
      case "$typed" in
{options}
      esac
    fi
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ ${{#COMPREPLY[@]}} -eq 0 ]]; then COMPREPLY=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _spectrope spectrope"""


def completion(shell: str = "bash") -> str:
    """The script for a shell.

    Args:
        shell: bash, zsh or fish.

    Raises:
        UnknownNameError: If it is another one.
    """
    if shell not in SHELLS:
        raise UnknownNameError("shell", shell, SHELLS)
    return SHELLS[shell]()


def _pages() -> dict[str, Page]:
    """The pages of commands and of their actions, by what is typed."""
    known = {name: Page.read(record) for name, record in json.loads(FILE.read_text("utf-8")).items()}
    actions = {
        f"{name} {action}": page for name, one in known.items() for action, page in one.actions.items()
    }
    return known | actions


def _bash() -> str:
    pages = _pages()
    options = [
        f"        {shlex.quote(typed)}) words={shlex.quote(' '.join(_words(page)))};;"
        for typed, page in pages.items()
    ]
    values = [
        f"      {shlex.quote(f'{typed} {option.name}')}) words={shlex.quote(' '.join(chosen))};;"
        for typed, page in pages.items()
        for option in page.options
        if (chosen := _choices(option))
    ]
    taking = [
        shlex.quote(f"{typed} {option.name}")
        for typed, page in pages.items()
        for option in page.options
        if option.value and not option.positional and not _choices(option)
    ]
    return BASH.format(
        grouped=" ".join(name for name, page in pages.items() if page.actions),
        first=" ".join([*commands(), "--help", "--version", "--completion"]),
        values="\n".join(values),
        taking=" | \\\n".join(f"      {one}" for one in taking),
        options="\n".join(options),
    )


def _fish() -> str:
    return "\n".join(["# Completion of spectrope for fish.", *_fish_lines()])


def _fish_lines() -> Iterator[str]:
    yield f"complete -c spectrope -n __fish_use_subcommand -f -a {shlex.quote(' '.join(commands()))}"
    for typed, page in _pages().items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in typed.split())
        start = f"complete -c spectrope -n {shlex.quote(seen)}"
        if page.actions:
            yield f"{start} -f -a {shlex.quote(' '.join(page.actions))}"
        for option in page.options:
            if not option.positional:
                chosen = _choices(option)
                value = f" -x -a {shlex.quote(' '.join(chosen))}" if chosen else " -r" if option.value else ""
                name = option.name.removeprefix("--")
                yield f"{start} -l {name}{value} -d {shlex.quote(option.text)}"
        yield from (f"{start} -l {name.removeprefix('--')}" for name in ALWAYS if not page.actions)


def _words(page: Page) -> list[str]:
    """What can follow a command: its actions, or its options."""
    if page.actions:
        return [*page.actions, *ALWAYS]
    return [*(option.name for option in page.options if not option.positional), *ALWAYS]


def _choices(option: Option) -> list[str]:
    """The values that an option takes, where they are few."""
    if option.value.startswith("{"):
        return option.value.strip("{}").split(",")
    if option.value == "DEVICE":
        return ["auto", "cpu", "cuda"]
    registry = NAMED.get(option.name)
    return [*members(registry)] if registry else []


def _zsh() -> str:
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash()}"


SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
