"""Padding: rows of a batch that hold fewer tokens than others, and tokens that are decoded behind it."""

import contextlib
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from spectrope.checkpoints.adapters import Call, Inputs
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.content import Text, other_outputs
from spectrope.checkpoints.audit.serving.decoding import STATIC, has_static_cache, static_lengths_restored
from spectrope.checkpoints.audit.serving.kernels import Refused, named_layer
from spectrope.checkpoints.audit.serving.model import ServedModel
from spectrope.checkpoints.probes.served import Served

BEHIND = 3  # Steps of generation in a batch with padding, of which the first reads the prompt.
FROM_STATIC = "from a static cache"
BEHIND_PADDING = "decoded in the row with padding"
BESIDE_DECODED = "decoded in the row without padding, below one that has some"
MORE, LESS = "in the row with more padding", "in the row with less padding"
BESIDE = "in the row without padding, below one that has some"


def padded(served: ServedModel, tokens: slice) -> list[Discrepancy]:
    """A prompt with padding outside `tokens`, and below it one without padding.

    On the left, padding goes through `generate`, as it is served.
    """
    return _Padded(served, tokens).findings()


@dataclass(frozen=True)
class _Padded:
    """Batches in which one row has padding.

    Args:
        served: The model.
        tokens: Where that row holds tokens.
    """

    served: ServedModel
    tokens: slice

    @property
    def left(self) -> bool:
        return self.tokens.start > 0

    @property
    def steps(self) -> int:
        """Tokens that are decoded behind the prompt."""
        return min(BEHIND, self.served.tokens - self.served.prompt)

    @property
    def held(self) -> slice:
        """Positions of the tokens that the row with padding holds."""
        return slice(0, self.served.prompt - self.served.padding)

    def findings(self) -> list[Discrepancy]:
        """What differs in the rows of a batch, in its decoding, and in other batches if this one is right."""
        served, mask = self.served, self._batch(2, 0)
        received = self._run(mask, self.steps)
        findings = served.first_misplaced(received, self.tokens) + self._beside_misplaced(received)
        findings = findings or (self._misplaced_behind(received) if self.left else [])
        findings += served.across(received, mask)
        if served.crossing and hasattr(served.model, "generate"):
            findings += served.across(self._generated(mask, BEHIND), mask)
        for module, calls in received.calls.items():
            kernel = served.applied(calls[0])
            findings += self._beside(module, calls[0])
            whole = kernel.allowed.shape[-1] == served.prompt  # some models put keys of their own before it
            if whole and bool(kernel.allowed[0, :, self.tokens, mask[0] == 0].any()):
                findings.append(_padding_seen(module))
            findings += served.differing(module, kernel.part(self.tokens), self.held)
            findings += self._decoded_behind(module, received) if self.left else []
        findings = findings or self._other_outputs() or self._last_padded(2) or self._last_padded(1)
        return findings or (self._behind_static() if self.left else [])

    def _other_outputs(self) -> list[Discrepancy]:
        """What differs in the outputs for varied content, also of decoded tokens, if both rows are padded."""
        served, mask = self.served, self._batch(2, 0)
        start, stop = self.tokens.start // 2, served.prompt - (served.prompt - self.tokens.stop) // 2
        mask[1] = 0
        mask[1, start:stop] = 1
        ids = Inputs(2, served.prompt).of(served.model)["input_ids"]

        def run() -> None:
            if self.left:
                served.generate(ids, mask, self.steps)
            else:
                served.forward(served.prompt, mask)

        decoded = self.steps - 1 if self.left else 0
        more, less = slice(self.tokens.start, self.tokens.stop + decoded), slice(start, stop + decoded)
        return other_outputs(served, run, Text(0, more, MORE), Text(1, less, LESS, 1))

    def _batch(self, rows: int, padded: int) -> Int[Tensor, "rows t"]:
        """The mask of prompts of which one row has padding."""
        mask = torch.ones(rows, self.served.prompt, dtype=torch.long, device=self.served.device)
        mask[padded] = 0
        mask[padded, self.tokens] = 1
        return mask

    def _run(self, mask: Int[Tensor, "b t"], steps: int) -> Served:
        if self.left:
            return self._generated(mask, steps)
        return self.served.served(lambda: self.served.forward(self.served.prompt, mask))

    def _generated(self, mask: Int[Tensor, "b t"], steps: int, **how: object) -> Served:
        ids = Inputs(len(mask), self.served.prompt).of(self.served.model)["input_ids"]
        return self.served.served(lambda: self.served.generate(ids, mask, steps, **how))

    def _last_padded(self, rows: int) -> list[Discrepancy]:
        """What differs if the last row of a batch alone has padding.

        Where queries see keys after them, it is on the left then, where the first row had it on the right.
        """
        served = self.served
        tokens = self.tokens if served.causal else slice(served.padding, served.prompt)
        mask = replace(self, tokens=tokens)._batch(rows, rows - 1)
        received = self._run(mask, 1)
        findings = served.across(received, mask)
        for module, calls in received.calls.items():
            call = calls[0]
            if call.sparse is not None or len(call.q) != rows or call.k.shape[2] != served.prompt:
                continue
            kernel = served.applied(call, rows - 1)
            if bool(kernel.allowed[0, :, tokens, mask[-1] == 0].any()):
                findings.append(_padding_seen(module))
            findings += served.differing(module, kernel.part(tokens), self.held)
            if rows > 1:
                findings += served.differing(module, served.applied(call), slice(0, served.prompt))
        note = "where the second row alone has padding" if rows > 1 else "in a batch of one row"
        return [replace(one, note=note) for one in findings]

    def _behind_static(self) -> list[Discrepancy]:
        """What differs where tokens are decoded from a static cache, in rows with and without padding."""
        if not has_static_cache(self.served):
            return []
        with static_lengths_restored(self.served.model), contextlib.suppress(Refused):
            received = self._generated(self._batch(2, 0), self.steps, **STATIC)
            findings = self._misplaced_behind(received)
            for module in received.calls:
                findings += self._decoded_behind(module, received)
            return [replace(one, note=f"{one.note}, {FROM_STATIC}") for one in findings]
        return []  # Decoding alone says why a static cache does not run.

    def _decoded_behind(self, module: str, received: Served) -> list[Discrepancy]:
        """What differs in a module where tokens are decoded."""
        calls, each = received.calls[module], len(self.served.reference[module])
        steps = ((nth, enumerate(calls[nth + each :: each])) for nth in range(each))
        found = [self._behind(module, call, step, nth) for nth, some in steps for step, call in some]
        return [one for findings in found for one in findings]

    def _behind(self, module: str, call: Call, step: int, nth: int) -> list[Discrepancy]:
        """What differs where a token is decoded in a row with padding, and in one without."""
        served = self.served
        slots, held = served.prompt + step + 1, call.k.shape[2]
        if call.sparse is not None or call.q.shape[::2] != (2, 1):
            return []  # such as models without a cache, which read everything again
        findings: list[Discrepancy] = []
        for row, padding in enumerate((served.padding, 0)):
            kernel, hidden = served.applied(call, row), max(0, padding - max(0, slots - held))
            rows = slice(slots - padding - 1, slots - padding)
            found = served.differing(module, kernel.keys_from(hidden), rows, nth)
            if bool(kernel.allowed[0, ..., :hidden].any()):
                found = [_padding_seen(module)]
            findings += [replace(one, note=(BEHIND_PADDING, BESIDE_DECODED)[row]) for one in found]
        return findings

    def _beside(self, module: str, call: Call) -> list[Discrepancy]:
        """What differs in the row without padding.

        Nothing is known of it where only the first row is read, or the model puts keys of its own before the
        tokens.
        """
        served = self.served
        if call.sparse is not None or len(call.q) != 2 or call.k.shape[2] != served.prompt:
            return []
        found = served.differing(module, served.applied(call, 1), slice(0, served.prompt))
        return [replace(one, note=BESIDE) for one in found]

    def _beside_misplaced(self, received: Served) -> list[Discrepancy]:
        """What is misplaced in the row without padding."""
        lasts = {
            table: rows[0].reshape(-1, rows[0].shape[-1])[-1] for table, rows in received.rows.items() if rows
        }
        prompt = self.served.prompt
        found = [self.served.misplaced(table, last[:prompt], 0) for table, last in lasts.items()]
        return [replace(one, note=BESIDE) for findings in found for one in findings]

    def _misplaced_behind(self, received: Served) -> list[Discrepancy]:
        """What is misplaced where tokens are decoded in a row with padding, and in one without."""
        served, findings = self.served, []
        for table, looked_up in received.rows.items():
            for step, rows in enumerate(looked_up[1:]):
                each = rows.reshape(-1, rows.shape[-1])
                if each.shape[-1] != 1:
                    continue
                first = served.misplaced(table, each[0], served.prompt - served.padding + step)
                findings += [replace(one, note=BEHIND_PADDING) for one in first]
                second = served.misplaced(table, each[-1], served.prompt + step)
                findings += [replace(one, note=BESIDE_DECODED) for one in second]
        return findings


def _padding_seen(module: str) -> Discrepancy:
    about = f"mask of {named_layer(module)}"
    return Discrepancy(about, "padding hidden", "padding seen", by="expected")
