"""Head outputs of one layer with several ablations applied at once."""

from collections.abc import Iterable

from jaxtyping import Float
from torch import Tensor

from spectrope.core import UnsupportedError
from spectrope.lab.ablation.fills.base import LayerFill, Site, fill_of
from spectrope.lab.ablation.interventions import HeadAblation


def changed_outputs(site: Site, ablations: Iterable[HeadAblation]) -> Float[Tensor, "b h i k"]:
    """Outputs of all heads of a layer with several ablations of this layer applied at once.

    A fill that changes the whole layer is applied first.

    Raises:
        UnsupportedError: If a fill is undefined for the attention or the encoding, or two fills change the
            whole layer.
    """
    heads: dict[str, list[int]] = {}
    for ablation in ablations:
        heads.setdefault(ablation.fill, []).append(ablation.head)
    whole = {name: fill for name in heads if isinstance(fill := fill_of(name), LayerFill)}
    if len(whole) > 1:
        raise UnsupportedError(f"fills {' and '.join(sorted(whole))} each change a whole layer; use one.")
    outputs = site.outputs
    for name, fill in whole.items():
        outputs = fill.layer_output(site, heads[name])
    outputs = outputs.clone()
    for name in heads:
        if name not in whole:
            outputs[:, heads[name]] = site.filled(name)[:, heads[name]]
    return outputs
