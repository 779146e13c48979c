"""Change heads in place by hooks that are removed on exit."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor, nn

from spectrope.encodings import Encoding
from spectrope.lab.ablation.change import changed_outputs
from spectrope.lab.ablation.fills.base import LayerMeans, Site
from spectrope.lab.ablation.interventions import HeadAblation
from spectrope.models import Block, Decoder, Heads, Stream


@contextlib.contextmanager
def ablated(
    model: Decoder,
    *ablations: HeadAblation,
    means: Sequence[LayerMeans] | None = None,
    donors: Sequence[Tensor] | None = None,
) -> Iterator[Decoder]:
    """Change some heads of a model before the output projection; the model is restored on exit.

    Args:
        model: A decoder.
        ablations: The heads and the replacements for their outputs.
        means: Means of each layer, if a fill needs them; see `data_means`.
        donors: Head outputs of each layer on other examples, if a fill needs them; see `donor_outputs`.

    Raises:
        ConfigError: If the model has no such head.
    """
    for ablation in ablations:
        ablation.check(model.config)
    with contextlib.ExitStack() as hooks:
        for layer in {ablation.layer for ablation in ablations}:
            in_layer = [ablation for ablation in ablations if ablation.layer == layer]
            block = model.blocks[layer]
            assert isinstance(block, Block)
            mean = None if means is None else means[layer]
            donor = None if donors is None else donors[layer]
            hooks.callback(block.heads.register_forward_hook(_change(in_layer, mean, donor)).remove)
        yield model


Hook = Callable[[nn.Module, tuple[Tensor, Stream, Encoding, str], Tensor], Tensor]


def _change(ablations: Sequence[HeadAblation], means: LayerMeans | None, donors: Tensor | None) -> Hook:
    """A forward hook for `Heads` that replaces outputs of some of them."""

    def hook(module: nn.Module, inputs: tuple[Tensor, Stream, Encoding, str], outputs: Tensor) -> Tensor:
        if all(ablation.fill == "zero" for ablation in ablations):  # needs nothing computed
            changed = outputs.clone()
            changed[:, [ablation.head for ablation in ablations]] = 0
            return changed
        assert isinstance(module, Heads)
        x, stream, encoding, impl = inputs
        ctx, v = module.context(x, stream)
        return changed_outputs(Site(module, encoding, ctx, v, outputs, impl, means, donors), ablations)

    return hook
