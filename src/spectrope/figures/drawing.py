"""A figure that can be displayed or saved."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectrope.core import require_type
from spectrope.figures.save import write_spec, written_svg


@dataclass(frozen=True, repr=False)
class Drawing:
    """A figure with its data, which a notebook displays.

    Args:
        name: Its name, as in `FIGURES`.
        spec: Its Vega-Lite specification, including the data; `altair.Chart.from_dict` accepts it.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> sp.figure(run, "loss").save("loss.png").name
        'loss.png'
    """

    name: str
    spec: dict[str, Any]

    def save(self, path: str | Path) -> Path:
        """Save the figure, and return the path.

        Args:
            path: File to write, whose suffix determines the format: .png, .svg, .pdf, .html (self-contained)
                or .json (the specification).

        Raises:
            ConfigError: If the suffix is unknown.
            StoreError: If the file cannot be written.
        """
        require_type(path, (str, Path), "path", "that of a file, such as figure.svg")
        return write_spec(self.spec, Path(path))

    def __repr__(self) -> str:
        return f"figure {self.name!r}; a notebook displays it, and .save({self.name + '.svg'!r}) writes it"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"image/svg+xml": written_svg(self.spec), "text/plain": repr(self)}


class HeadEffects(ABC):
    """Effects of changing each head of a model, with a heat map."""

    @abstractmethod
    def figure(self) -> Drawing:
        """The heat map of all heads."""
