"""Saved configurations, edited by hand as their users edit them."""

import json

from tests.checkpoints.audit.families import SIZES, build

from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.audit import audit
from spectrope.core import unwatched


def saved(folder, family: str, **changes):
    build(family, **SIZES | changes).save_pretrained(folder)


def edit(folder, fields: dict):
    """Change fields of a saved configuration."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def quick(folder):
    return audit(open_model(folder), length=64, serving_modes=False, reach=False, watch=unwatched)
