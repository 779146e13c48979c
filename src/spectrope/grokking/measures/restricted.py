"""Restricted and excluded loss: with only the key frequencies of the logits, and without them."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.grokking.measures.base import ProgressMeasure, Snapshot
from spectrope.grokking.measures.fourier import spectrum

KEY_FREQUENCIES = 5


class RestrictedLoss(ProgressMeasure, name="restricted"):
    r"""Restricted and excluded loss: cross-entropy with the key frequencies alone, and without them.

    Logits are functions of a and b; their part :math:`\bar L(c)` that depends on the result c alone is their
    mean over the pairs with that result. Its wave k, over results in the order of the group, is the term in
    :math:`\cos(w_k c), \sin(w_k c)`, which for addition are the products of waves in a and b that a
    trigonometric solution uses. The five with the most power, at this moment, are the key frequencies.
    Restricted logits are the mean and these waves (loss over all pairs); excluded ones are the logits less
    these waves (loss over the training pairs). Pairs whose result the group leaves out do not count.

    References:
        Progress Measures for Grokking via Mechanistic Interpretability (Nanda et al., 2023), Sec. 5.1, where
        the key frequencies are those of the trained model.
    """

    columns: ClassVar = {
        "restricted_loss": "cross-entropy of all pairs with the key frequencies alone, nats",
        "excluded_loss": "cross-entropy of training pairs without the key frequencies, nats",
    }

    def __call__(self, snapshot: Snapshot) -> dict[str, float | None]:
        labels = snapshot.split.pairs.labels
        place = torch.full((snapshot.logits.shape[1],), -1)
        place[snapshot.cycle] = torch.arange(len(snapshot.cycle))
        place = place[labels]
        counted = place >= 0
        if len(place[counted].unique()) < len(snapshot.cycle):
            return dict.fromkeys(self.columns)  # some results never occur, and a wave over them is undefined
        place, labels, logits = place[counted], labels[counted], snapshot.logits[counted]
        trains = snapshot.split.trains[counted]
        mean, waves = key_waves(class_means(logits, place, len(snapshot.cycle)))
        excluded = F.cross_entropy((logits - waves[place])[trains], labels[trains])
        return {
            "restricted_loss": F.cross_entropy((mean + waves)[place], labels).item(),
            "excluded_loss": excluded.item(),
        }


def class_means(logits: Float[Tensor, "n p"], place: Int[Tensor, " n"], classes: int) -> Float[Tensor, "m p"]:
    """Mean logits of the examples of each class."""
    sums = logits.new_zeros(classes, logits.shape[1]).index_add_(0, place, logits)
    return sums / torch.bincount(place, minlength=classes)[:, None]


def key_waves(means: Float[Tensor, "m p"]) -> tuple[Float[Tensor, " p"], Float[Tensor, "m p"]]:
    """The constant part of a signal over a cycle, and the sum of its most powerful waves."""
    power = spectrum(means)
    keys = 1 + power.topk(min(KEY_FREQUENCIES, len(power))).indices
    transform = torch.fft.rfft(means, dim=0)
    kept = torch.zeros_like(transform)
    kept[keys] = transform[keys]
    return means.mean(0), torch.fft.irfft(kept, n=len(means), dim=0)
