"""How the paper's public code ablates: its faults R9 and R10; R12 is that of latent attention.

It zeroes a head's rows of the value projection, weight and bias, so that its output is zero, and never
restores the last head of a layer: R9 differs from the controlled protocol in the latter alone.
"""

from spectrope.lab import PROTOCOLS, Protocol
from spectrope.study.released.latent_columns import LatentColumns

RELEASED = {
    "R9": Protocol(restored=False),
    "R10": Protocol(data="all"),
    "R12": Protocol(fill=LatentColumns.kind),
    "released": Protocol(restored=False, data="all"),
    "released-mla": Protocol(fill=LatentColumns.kind, restored=False, data="all"),
}
for name, protocol in RELEASED.items():
    PROTOCOLS.register(name, protocol)
