"""What tests of the front door ask for."""

from typing import Any

import spectrope as sp

SMALL: dict[str, Any] = {"epochs": 1, "n_examples": 60, "watch": sp.unwatched}
