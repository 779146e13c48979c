"""The page on continuous integration, followed from an empty repository with the action's own steps."""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml

from spectrope.cli import main

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "audit-in-ci.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXPRESSION = re.compile(r"\$\{\{ ([\w.]+) \}\}")
GIT = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in {"NAME": "A", "EMAIL": "a@b.c"}.items()
}


def blocks(language, heading):
    """Blocks of a language in a section of the page."""
    section = PAGE.split(f"\n## {heading}")[1].split("\n## ")[0]
    return [text for found, text in BLOCK.findall(section) if found == language]


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """Environment of a machine on which Python has the dependencies of the package, but not the package."""
    home = tmp_path_factory.mktemp("runner")
    venv.create(home, with_pip=False, symlinks=True)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    offline = {"HF_HUB_OFFLINE": "1", "PIP_NO_BUILD_ISOLATION": "false", "PIP_NO_INDEX": "1"}
    return os.environ | offline | GIT | {"PATH": path}


def bash(script, env, folder):
    """Run a script as a runner does: it ends at the first command that fails."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)


def run_action(env, folder, given):
    """Every step of the action, until one fails."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    known = {f"inputs.{name}": str(one["default"]) for name, one in action["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in given.items()} | {"github.action_path": str(ROOT)}
    output = ""
    for step in action["runs"]["steps"]:
        filled = {k: EXPRESSION.sub(lambda m: known[m[1]], v) for k, v in step.get("env", {}).items()}
        done = bash(step["run"], env | filled, folder)
        output += done.stdout + done.stderr
        if done.returncode:
            return done.returncode, output
    return 0, output


def run_workflow(env, folder):
    """Every step of the page's workflow; those of GitHub itself are taken as done."""
    [text] = [one for one in blocks("yaml", "3. Add the build") if "jobs:" in one]
    steps = yaml.safe_load(text)["jobs"]["spectrope"]["steps"]
    ours = [step for step in steps if not step["uses"].startswith("actions/")]
    assert [step["uses"].split("@")[0] for step in ours] == ["OWNER/spectrope"]
    return run_action(env, folder, ours[0].get("with", {}))


def typed(heading):
    """The commands of a section."""
    return "\n".join(
        line.removeprefix("$ ") for text in blocks("console", heading) for line in text.splitlines()
    )


def test_the_page_leads_to_a_red_build_and_back_to_green(runner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    assert bash(typed("1. A repository"), runner, tmp_path).returncode == 0
    exec(*blocks("python", "1. A repository"), namespace)
    assert main(shlex.split(typed("2. Lock the checkpoint"))[1:]) == 0
    assert bash(typed("3. Add the build"), runner, tmp_path).returncode == 0

    exec(*blocks("python", "4. A base changes"), namespace)
    code, output = run_workflow(runner, tmp_path)
    assert code == 1, output
    [told] = blocks("text", "4. A base changes")
    assert " ".join(told.split()) in " ".join(output.split())
    assert (tmp_path / "spectrope.sarif").exists()
    gitlab = run_gitlab(runner, tmp_path)
    assert gitlab.returncode == 1
    assert "base: 500000 locked, 10000 now" in " ".join(gitlab.stdout.split())

    assert bash(typed("5. Restore the base"), runner, tmp_path).returncode == 0
    code, output = run_workflow(runner, tmp_path)
    assert code == 0, output
    assert 'failures="0"' in (tmp_path / "spectrope.xml").read_text()


def test_the_action_accepts_one_more_exit_code(runner, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, code in (("spectrope", 3), ("python", 0)):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@"\nexit {code}\n')
        (programs / name).chmod(0o755)
    env = runner | {"PATH": f"{programs}{os.pathsep}{runner['PATH']}"}
    assert run_action(env, tmp_path, {})[0] == 3
    assert run_action(env, tmp_path, {"accept": "1"})[0] == 3
    code, output = run_action(env, tmp_path, {"accept": "3", "torch": "https://example.org/cpu"})
    assert code == 0
    assert (
        "pip install --quiet --disable-pip-version-check torch --index-url https://example.org/cpu" in output
    )


def run_gitlab(env, folder):
    """The job of the template, which the page shows, with its own variables."""
    template = (ROOT / "templates" / "spectrope.gitlab-ci.yml").read_text()
    assert template in blocks("yaml", "3. Add the build")
    job = yaml.safe_load(template)["spectrope"]
    assert job["artifacts"]["reports"]["junit"] == "spectrope.xml"
    own = {"SPECTROPE_REQUIREMENTS": "spectrope[hf]"}  # Which is installed, so that nothing is downloaded.
    return bash("\n".join(job["script"]), env | job["variables"] | own, folder)


def test_the_hook_of_pre_commit_runs_the_check_for_files_that_matter(tmp_path, monkeypatch, capsys):
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    for name in ("model/config.json", "spectrope.lock", "model/model-00001-of-00002.safetensors"):
        assert re.search(hook["files"], name)
    assert not re.search(hook["files"], "README.md")
    program, *arguments = shlex.split(hook["entry"])
    assert program == "spectrope"
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(*blocks("python", "1. A repository"), namespace)
    assert main(shlex.split(typed("2. Lock the checkpoint"))[1:]) == 0
    assert main(arguments) == 0
    exec(*blocks("python", "4. A base changes"), namespace)
    assert main(arguments) == 1
    assert "base: 500000 locked, 10000 now" in " ".join(capsys.readouterr().out.split())


def test_the_interpreter_of_the_runner_is_not_this_one(runner):
    found = subprocess.run(["bash", "-c", "command -v python"], env=runner, capture_output=True, text=True)
    assert found.stdout.strip() != sys.executable
