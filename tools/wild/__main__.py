"""RoPE in the wild: `python -m tools.wild` measures public libraries and redraws the page.

Every file in `tools/wild/adapters` wraps one library. Its packages are installed without their dependencies
into an environment in `build/wild`, which falls back on this one for torch and for spectrope, and `spectrope
conform` runs there. `python -m tools.wild NAME` measures one library anew; `--page` only draws the page.
"""

import argparse
import ast
import datetime
import json
import os
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import version
from pathlib import Path

from tools.wild.page import columns, page

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
ADAPTERS, STORED = HERE / "adapters", HERE / "results"
ENVIRONMENTS, PAGE = ROOT / "build" / "wild", ROOT / "docs" / "reference" / "rope-in-the-wild.md"
BASE_PATH = "zz_base.pth"  # The last of the path files, so that the library's own packages come first.


def names() -> list[str]:
    """The libraries."""
    return sorted(path.stem for path in ADAPTERS.glob("[!_]*.py"))


def requirements(name: str) -> list[str]:
    """The packages that an adapter names, the library first."""
    for node in ast.parse((ADAPTERS / f"{name}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "REQUIRES":
            return list(ast.literal_eval(node.value))
    raise SystemExit(f"{name}.py names no REQUIRES")


def python_of(name: str) -> Path:
    """The interpreter of a library's environment, which is made if it is not there."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        library = next((folder / "lib").glob("python*")) / "site-packages"
        (library / BASE_PATH).write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
        command = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*command, *requirements(name)], check=True)
        (folder / "installed").touch()
    return python


def measure(name: str) -> None:
    """Run the suite in a library's environment and store what came out, with versions."""
    python, package = python_of(name), requirements(name)[0].partition("==")[0]
    adapter = f"{ADAPTERS / name}.py:apply_rope"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [str(python), "-W", "ignore", "-m", "spectrope", "conform", adapter, "--json", "--quiet"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ENVIRONMENTS, env=environment)
    if not found.stdout:
        raise SystemExit(f"{name}: {' '.join(found.stderr.strip().splitlines()[-1:])}")
    asked = f"from importlib.metadata import version; print(version({package!r}))"
    told = subprocess.run(
        [str(python), "-c", asked], capture_output=True, text=True, check=True
    ).stdout.strip()
    result = json.loads(found.stdout)
    record = {
        "library": package,
        "version": told,
        "torch": version("torch"),
        "date": datetime.date.today().isoformat(),
        "cells": len(result["cells"]),
        "wrapped": ast.get_docstring(ast.parse((ADAPTERS / f"{name}.py").read_text(encoding="utf-8"))),
        "columns": columns(result["cells"]),
        "examples": [{"said": one["said"], "code": str(one["code"])} for one in result["examples"]],
    }
    STORED.mkdir(exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (STORED / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="libraries (default: all)")
    parser.add_argument("--page", action="store_true", help="draw the page from what is stored")
    given = parser.parse_args()
    for name in () if given.page else given.names or names():
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        measure(name)
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(STORED.glob("*.json"))]
    PAGE.write_text(page(records), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(PAGE)], check=True)
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
