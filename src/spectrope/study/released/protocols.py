"""How the paper's public code ablates: its faults R9 and R10; R12 is that of latent attention."""

from spectrope.lab import PROTOCOLS, Protocol
from spectrope.study.released.latent_columns import LatentColumns
from spectrope.study.released.value_bias import ValueBias

RELEASED = {
    "R9": Protocol(fill=ValueBias.kind, restored=False),
    "R10": Protocol(data="all"),
    "R12": Protocol(fill=LatentColumns.kind),
    "released": Protocol(fill=ValueBias.kind, restored=False, data="all"),
    "released-mla": Protocol(fill=LatentColumns.kind, restored=False, data="all"),
}
for name, protocol in RELEASED.items():
    PROTOCOLS.register(name, protocol)
