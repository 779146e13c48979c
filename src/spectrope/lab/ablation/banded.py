"""Base of fills that change one frequency band of a head's positional encoding."""

import re
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from spectrope.core import ConfigError
from spectrope.encodings import Band, BandChange, Banded
from spectrope.lab.ablation.fills.base import Fill, Site

HIGHEST = Band(index=0, of=4)


@dataclass(frozen=True)
class BandFill(Fill):
    """A fill with a setting: the band, as in `remove-band@1of4`; without one, the highest of four."""

    band: Band = HIGHEST

    change: ClassVar[BandChange]

    @classmethod
    def at(cls, setting: str) -> "BandFill":
        return cls(read_band(setting))

    def encoding(self, site: Site) -> Banded:
        """The encoding of a layer with the band changed in all heads.

        Raises:
            UnsupportedError: If the encoding has no frequency bands.
        """
        return Banded(
            site.encoding,
            self.band,
            self.change,
            width=site.ctx.q.shape[-1],
            n_heads=site.heads.n_heads,
            causal=site.heads.causal,
            lags=site.lags if "lags" in self.needs else None,
        )

    def output(self, site: Site) -> Tensor:
        return site.attend(site.ctx, self.encoding(site))


def read_band(setting: str) -> Band:
    """The band that a setting names, such as "1of4".

    Raises:
        ConfigError: If it names none.
    """
    match = re.fullmatch(r"(\d+)of(\d+)", setting)
    if match is None:
        raise ConfigError(
            f"a band is written as its number and the number of bands, such as 0of4; got {setting!r}."
        )
    return Band(index=int(match[1]), of=int(match[2]))


def band_name(band: Band) -> str:
    """The setting that names a band."""
    return f"{band.index}of{band.of}"
