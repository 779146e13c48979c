"""One token behind a cache that stands for many, which costs no more than a cache of few."""

from typing import Any

import torch

from spectrope.checkpoints.adapters.claimed_cache import cache_of
from spectrope.checkpoints.adapters.interface import uses_interface
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.kernels import PLAIN, Refused, beside_logits, bound, named_layer
from spectrope.checkpoints.audit.serving.model import ServedModel
from spectrope.checkpoints.probes.served import Served

KEYS_ONLY = "the model does not run with a cache that holds nothing but keys and values"


def far_behind(served: ServedModel) -> list[Discrepancy]:
    """One token behind a cache that stands for many: its query, and what its attention function sees."""

    def run(*places: int, **given: Any) -> Served:
        takes = "position_ids" in served.arguments
        named = {"position_ids": torch.tensor([places], device=served.device)} if takes else {}
        return served.served(lambda: served.forward(len(places), **named, **given))

    try:
        alone = run(served.past, past_key_values=cache_of(served.past))
    except Refused as refusal:
        raise Refused(f"{KEYS_ONLY}: {refusal}") from refusal
    among = run(0, 1, served.past) if chooses_places(served) else None
    findings: list[Discrepancy] = []
    for module, calls in alone.calls.items():
        call, about = calls[0], named_layer(module)
        kernel = served.applied(call)
        if others := beside_logits(kernel, served.reference[module][0]):
            findings.append(Discrepancy(f"kernel of {about}", PLAIN, others, by="expected"))
        elif not torch.equal(kernel.allowed.cpu(), call.allowed.expand(kernel.allowed.shape).cpu()):
            findings.append(Discrepancy(f"mask of {about}", "the one given", "another", by="expected"))
        if among is not None:
            plain = among.calls[module][0]
            sides = {"query": (plain.q[..., -1, :], call.q[..., -1, :])}
            sides["key"] = (plain.k[..., -1, :], call.k[..., -1, :])
            own = (served.applied(plain).logits[..., -1, -1], kernel.logits[..., -1, -1])
            sides["logit of a token with itself"] = own
            for side, (wanted, got) in sides.items():
                gap = (wanted - got).double().abs().max()
                if bool(gap > bound(wanted, wanted, served.noise)):
                    text = f"{side} off by {gap.item():.3g} at position {served.past}"
                    findings.append(Discrepancy(f"kernel of {about}", PLAIN, text, by="expected"))
    return findings


def takes_long_cache(served: ServedModel) -> bool:
    """Whether a cache can stand for the model's tokens, of which there are more than in other modes."""
    return served.past >= served.tokens and uses_interface(served.model)


def chooses_places(served: ServedModel) -> bool:
    """Whether a token's place is that which it is given, so that a few tokens can have any."""
    return "position_ids" in served.arguments and not served.cooled
