"""Keeps the figures of campaigns in `campaigns/results/NAME.json`, with the machine and the versions."""

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("spectrope", "torch", "polars", "safetensors")


def machine() -> dict[str, Any]:
    """Processor, cores, system and versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def store(campaign: str, part: str, figures: dict[str, Any], *, keep: bool = True) -> None:
    """Put the figures of one part of a campaign in the place of its earlier ones; those of others stay."""
    if not keep:
        print(json.dumps(figures, indent=1))
        return
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{campaign}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[part] = {"when": datetime.now(UTC).date().isoformat(), "machine": machine(), **figures}
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
