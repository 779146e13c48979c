"""Build source distribution and wheel, check them, and try the wheel: `python -m tools.dist [--out dist]`.

The wheel is installed alone into an empty environment, which borrows the dependencies of this one, and there
runs the commands and the Python example that the README begins with.
"""

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST = (("--version",), ("encodings",), ("claims", "list", "1"))


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """Run a command, show what it prints, and return it.

    Raises:
        SystemExit: If it fails.
    """
    done = subprocess.run([str(word) for word in command], cwd=folder, text=True, capture_output=True)
    print(done.stdout + done.stderr, end="", flush=True)
    if done.returncode:
        raise SystemExit(f"`{' '.join(map(str, command))}` ended with {done.returncode}")
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
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    programs = environment / ("Scripts" if sys.platform == "win32" else "bin")
    python = programs / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "-q", wheel)
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    borrowed = [path for path in sys.path if Path(path).name == "site-packages"]
    (purelib / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
    found = run(python, "-c", "import spectrope; print(spectrope.__file__)", folder=folder)
    if not Path(found.strip()).is_relative_to(environment):
        raise SystemExit(f"the environment imports {found.strip()}, which is not the wheel's")
    for words in FIRST:
        run(programs / "spectrope", *words, folder=folder)
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    (folder / "example.py").write_text(example, encoding="utf-8")
    run(python, "example.py", folder=folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build, check and try the distributions.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder to write")
    wheel = build(parser.parse_args().out.resolve())
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(wheel, Path(folder))
    print(f"{wheel} passes.")


if __name__ == "__main__":
    main()
