"""Configurations as published checkpoints write them, old layouts among them, with their sizes made small.

`python -m tests.checkpoints.audit.published` audits a model of each and prints those that do not match.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers

from spectrope.checkpoints.audit import Audit, audit
from spectrope.core import unwatched

LENGTH = 64
FILES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())


def saved(name: str, folder: Path, **changed: Any) -> Path:
    """A checkpoint with random weights; its file is as published, but for fields that were changed since."""
    given = json.loads(json.dumps(FILES[name]))  # The library changes what it is given.
    config = transformers.AutoConfig.for_model(given.pop("model_type"), **given)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(transformers, FILES[name]["architectures"][0])(config)
    model.save_pretrained(folder)
    fields = json.loads(json.dumps(FILES[name])) | {"torch_dtype": "float32"}
    fields.get("text_config", fields).update(changed)
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def audited(folder: Path) -> Audit:
    return audit(folder, length=LENGTH, watch=unwatched)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    matching = 0
    for each in FILES:
        with tempfile.TemporaryDirectory() as place:
            found = audited(saved(each, Path(place)))
        matching += found.ok
        if not found.ok:
            sys.stdout.write(f"{each}: {'; '.join(map(str, found.findings))}\n")
    sys.stdout.write(f"{len(FILES)} published configurations: {matching} match\n")
