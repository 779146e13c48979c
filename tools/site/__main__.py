"""Build the documentation site, static files that need no server: `python -m tools.site [--out build/site]`.

Every warning is an error, and so is a link within the site that leads nowhere.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tools.site.sources import write_sources


def build(out: Path, *settings: str) -> int:
    """Write the sources, build the pages from them, and return Sphinx's exit code.

    Args:
        out: Folder of the sources, the cache and the pages in `html`.
        settings: Settings of Sphinx, such as `nb_execution_mode=off`.
    """
    source = out / "source"
    write_sources(source, out / "gallery")
    chosen = [word for setting in settings for word in ("-D", setting)]
    options = [
        "-W",
        "--keep-going",
        "-q",
        "-E",
        "-j",
        "auto",
        "-b",
        "html",
        "-d",
        str(out / "doctrees"),
        *chosen,
    ]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(out / "html")]
    return subprocess.run(command, env=os.environ | {"PYTHONWARNINGS": "ignore"}).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--out", type=Path, default=Path("build/site"), help="folder to write")
    parser.add_argument("-D", dest="settings", action="append", default=[], help="setting of Sphinx")
    asked = parser.parse_args()
    code = build(asked.out, *asked.settings)
    if code == 0:
        print(f"{asked.out / 'html' / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
