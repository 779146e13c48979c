"""Runtimes that return next-token log-probabilities: a model in this process, or another program."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import evaluating, require_own_head, runs_at
from spectrope.checkpoints.parity.observed import Observed
from spectrope.core import UnsupportedError

BATCH_TOKENS = 1 << 14  # Tokens of a forward pass.


class Runtime(ABC):
    """Something that runs a language model."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For reports."""

    @abstractmethod
    def predict(self, prompts: Int[Tensor, "n t"], places: Int[Tensor, " m"]) -> Observed:
        """What the model predicts after the tokens up to and with each of these places.

        Args:
            prompts: Token ids, all of one length.
            places: Indices into a prompt, ascending.
        """


@dataclass(frozen=True, eq=False)
class ModelRuntime(Runtime):
    """A causal language model of transformers, in this process.

    Args:
        model: With a head that predicts tokens.
        label: For reports.
        cached: Whether tokens enter one at a time and find the keys of those before in a cache.
    """

    model: nn.Module
    label: str = "model"
    cached: bool = False

    @property
    def name(self) -> str:
        return self.label

    @torch.no_grad()
    def predict(self, prompts: Int[Tensor, "n t"], places: Int[Tensor, " m"]) -> Observed:
        require_own_head(self.model)
        model: Any = self.model
        if model.config.is_encoder_decoder:
            raise UnsupportedError(
                f"{self.label} has an encoder; parity compares models that complete texts."
            )
        size = model.get_input_embeddings().weight.shape[0]
        if int(prompts.max()) >= size:
            raise UnsupportedError(
                f"{self.label} has {size} tokens, and a prompt holds token {int(prompts.max())}; is it the "
                "same model?"
            )
        with runs_at(prompts.shape[1], self.model):
            return self.observe(prompts, places)

    @torch.no_grad()
    def observe(self, prompts: Int[Tensor, "n t"], places: Int[Tensor, " m"]) -> Observed:
        """`predict` without its checks; errors of the model are raised as they are."""
        step = self._stepwise if self.cached else self._whole
        rows = max(1, BATCH_TOKENS // prompts.shape[1])
        device = next(self.model.parameters()).device
        with evaluating(self.model):
            logits = [step(some.to(device), places) for some in prompts.split(rows)]
        return Observed(torch.cat(logits).double().cpu().log_softmax(-1))

    def _whole(self, prompts: Int[Tensor, "n t"], places: Int[Tensor, " m"]) -> Tensor:
        return self.model(input_ids=prompts, use_cache=False).logits[:, places.to(prompts.device)]

    def _stepwise(self, prompts: Int[Tensor, "n t"], places: Int[Tensor, " m"]) -> Tensor:
        cache, found, wanted = None, [], set(places.tolist())
        for place in range(int(places.max()) + 1):
            out = self.model(input_ids=prompts[:, place : place + 1], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            if place in wanted:
                found.append(out.logits[:, -1])
        return torch.stack(found, 1)
