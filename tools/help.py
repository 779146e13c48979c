"""Write the help of all commands to the file that `--help` reads: `python -m tools.help`."""

import json
from dataclasses import asdict

from spectrope.cli.help import FILE, pages

if __name__ == "__main__":
    records = {name: asdict(page) for name, page in pages().items()}
    FILE.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
