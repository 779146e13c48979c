"""Build source distribution and wheel, check them, and try the wheel: `python -m tools.dist [--out dist]`.

pip installs the wheel with its declared dependencies into an empty environment, so that a missing one is
noticed. There the first commands and the Python example of the README are run.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST = {  # Commands, and what they must print.
    ("--version",): r"spectrope \d",
    ("encodings",): r"rope +Rotates",
    ("claims", "list", "1"): r"distance-ordering",
    (
        "claims",
        "list",
        "11",
    ): r"(reproduced|contradicted|undecided|saturated|direction only), \d",  # From its own rows.
}


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """Run a command, show what it prints, and return its standard output.

    Raises:
        SystemExit: If it fails.
    """
    words = [str(word) for word in command]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(words, cwd=folder, text=True, capture_output=True, env=clean)
    print(done.stdout + done.stderr, end="", flush=True)
    if done.returncode:
        raise SystemExit(f"`{' '.join(words)}` ended with {done.returncode}")
    return done.stdout


def build(out: Path, *options: str) -> Path:
    """Build both distributions, the wheel from the source distribution, check them, and return the wheel."""
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", out, *options)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(out.iterdir()))
    return next(out.glob("*.whl"))


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install a wheel into an empty environment in a folder, and do there what a new user would.

    Raises:
        SystemExit: If something fails.
    """
    python = install(wheel, folder / "environment")
    for words, expected in FIRST.items():
        printed = run(python.with_name("spectrope"), *words, folder=folder)
        if re.search(expected, printed) is None:
            raise SystemExit(f"`spectrope {' '.join(words)}` does not print {expected!r}")
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    (folder / "example.py").write_text(example, encoding="utf-8")
    run(python, "example.py", folder=folder)


def install(wheel: Path, environment: Path) -> Path:
    """Install a wheel and its dependencies into a new environment, and return that environment's Python.

    Raises:
        SystemExit: If pip fails, or the environment has the package from elsewhere.
    """
    venv.create(environment, with_pip=False)
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pinned = ("-c", ROOT / "constraints.txt")
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", *pinned, wheel)
    printed = run(python, "-c", "import spectrope; print(spectrope.__file__)", folder=environment)
    if not Path(printed.strip()).is_relative_to(environment):
        raise SystemExit(f"the environment imports {printed.strip()}, which is not the wheel's")
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description="Build, check and try the distributions.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder to write")
    wheel = build(parser.parse_args().out.resolve())
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel, Path(folder))
    print(f"{wheel} passes.")


if __name__ == "__main__":
    main()
