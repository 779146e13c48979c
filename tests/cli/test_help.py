"""Help: what is committed is what commands say, it fits a small terminal, and it imports nothing slow."""

import json
import shlex
import subprocess
import sys
from dataclasses import asdict

import pytest
import tyro

from spectrope.cli import main
from spectrope.cli.catalogue import commands
from spectrope.cli.help import FILE, Page, asked, pages

PAGES = {
    f"{name} {action}".strip(): page
    for name, one in pages().items()
    for action, page in {"": one, **one.actions}.items()
}


def test_what_is_committed_is_what_the_commands_say():
    committed = json.loads(FILE.read_text(encoding="utf-8"))
    assert committed == json.loads(json.dumps({name: asdict(page) for name, page in pages().items()})), (
        "`python -m tools.help` writes the help anew"
    )


def test_the_help_of_the_program_fits_a_small_terminal(capsys):
    assert main(("--help",)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    listed = [name for name, one in commands().items() if one.listed]
    assert [line.split()[0] for line in lines if line.startswith("  ")] == listed
    assert lines[-1].startswith(
        f"`spectrope --help-all` lists {len(commands()) - len(listed)} more commands."
    )


def test_all_of_the_help_lists_every_command(capsys):
    assert main(("--help-all",)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(commands())


@pytest.mark.parametrize("typed", PAGES)
def test_help_fits_a_small_terminal_and_says_what_every_option_does(typed, capsys):
    assert main((*typed.split(), "--help")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"usage: spectrope {typed}")
    page = PAGES[typed]
    assert page.summary.endswith(".")
    assert len(page.examples) == 2
    assert main((*typed.split(), "--help-all")) == 0
    everything = capsys.readouterr().out
    for option in page.options:
        assert option.name in everything
        assert option.text[0].isupper() or option.text.split()[0] in everything
        assert option.text.endswith((".", "]"))
        assert "None" not in option.value
        assert not {"None keeps", "None takes"} & {option.text[:10]}


@pytest.mark.parametrize("example", sorted({example for page in PAGES.values() for example in page.examples}))
def test_examples_can_be_typed(example):
    program, name, *arguments = shlex.split(example)
    assert program == "spectrope"
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    assert tyro.cli(commands()[name].load(), args=arguments, config=config) is not None


def test_help_imports_nothing_that_is_slow():
    code = (
        "import sys; from spectrope.cli import main; main(('compare', '--help'));"
        "print(sorted({'torch', 'polars', 'altair', 'scipy', 'transformers'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "everything"),
    [((), None), (("-h",), False), (("run", "--help"), False), (("--help", "--help-all"), True)],
)
def test_what_is_asked(arguments, everything):
    assert asked(arguments) is everything
    assert asked(("--", *arguments)) is None


def test_a_command_of_a_plug_in_is_described_when_it_is_asked_for():
    page = Page.of(commands()["runs"].load())
    assert "--runs PATH" in page.text("spectrope plug", everything=False)


def test_usage_puts_brackets_around_what_may_be_left_out():
    typed = {name: page.usage(name) for name, page in pages().items()}
    assert typed["encodings"] == "usage: encodings [ENCODING ...] [OPTIONS]"
    assert typed["audit"] == "usage: audit MODEL [OPTIONS]"
