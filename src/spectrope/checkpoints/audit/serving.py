"""Check that caches, chunked prefill, padding and packing apply the kernels of a plain forward pass."""

import contextlib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise, product
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import (
    FAILURES,
    POOLS,
    Call,
    Inputs,
    sequences_told_apart,
)
from spectrope.checkpoints.adapters.claimed_cache import cache_of
from spectrope.checkpoints.adapters.interface import uses_interface
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.records import ServingRecord
from spectrope.checkpoints.audit.serving_kernels import (
    PLAIN,
    SIZE,
    AppliedCall,
    Refused,
    applied_by,
    beside_logits,
    bound,
    differing,
    named_layer,
)
from spectrope.checkpoints.audit.serving_tokens import STEPS
from spectrope.checkpoints.audit.text import KEYS_ALONE, LONG
from spectrope.checkpoints.probes.constant_content import attending_modules, convolves
from spectrope.checkpoints.probes.constant_token import Absolute, constant_token, table_of
from spectrope.checkpoints.probes.served import Served
from spectrope.checkpoints.probes.served import served as served_by
from spectrope.core import SpectropeError

MERGED = "the model takes them for one"
BEHIND = 3  # Steps of generation in a batch with padding, of which the first reads the prompt.
STATIC_CACHE, FROM_STATIC = "static cache", "from a static cache"
STATIC: dict[str, Any] = {"cache_implementation": "static", "disable_compile": True}
BEHIND_PADDING = "decoded in the row with padding"
BESIDE_DECODED = "decoded in the row without padding, below one that has some"
PACKED = {"second": "the first", "third": "an earlier one"}
BESIDE = "in the row without padding, below one that has some"
BARE = "given tokens and a cache alone, without positions or a mask"
COUNT_ANEW = ("bamba",)  # Classes that forget a cache's tokens unless they are given positions.
SHORT_PROMPT = 12  # Tokens of a first chunk.
BLOCK = 32  # A chunk begins there, with a block or page of a kernel.
DECODING = "cached decoding"


Reference = dict[str, list[AppliedCall]]  # Of each call that a module makes in one forward pass.


@dataclass(frozen=True)
class ServingModes:
    """Serving modes of one model.

    Args:
        model: The whole model, in evaluation mode.
        modules: Dotted names of its attention modules.
        tables: Row of the first position in each table of positions, by its dotted name.
        noise: Relative rounding error of the model's arithmetic.
        seed: Of the constant content.
        tokens: Of a prompt and what is decoded after it.
        past: Tokens that a cache stands for, behind which one token is read.
    """

    model: nn.Module
    modules: list[str]
    tables: dict[str, int]
    noise: float
    seed: int
    tokens: int
    past: int

    @property
    def prompt(self) -> int:
        """Tokens of a prompt; the others are decoded after it."""
        return self.tokens - min(STEPS, 3 * self.tokens // 8)

    @property
    def padding(self) -> int:
        """Tokens of a prompt that are padding, or its first sequence."""
        return self.prompt // 4

    def check(self) -> Iterator[ServingRecord]:
        """A record per serving mode of the model."""
        alone: dict[str, set[str]] = {}
        for mode, record in self._checks().items():
            try:
                outcome = record(mode)
            except Refused as refusal:
                outcome = ServingRecord(mode, "cannot tell", (), str(refusal))
            alone[mode] = {*map(_respect, outcome.findings)}
            yield _without(outcome, alone)

    def _checks(self) -> dict[str, Callable[[str], ServingRecord]]:
        """The check of each serving mode, by its name."""
        checks: dict[str, Callable[[str], ServingRecord]] = {}
        if self._config.model_type in POOLS:
            return {"right padding": self._pooling}
        two_stacks = self._config.is_encoder_decoder
        serves = two_stacks or self._causal
        if serves and hasattr(self.model, "generate"):
            if "past_key_values" in self._arguments:
                checks[DECODING] = self._decoded
                if getattr(self.model, "_can_compile_fullgraph", False):
                    checks[STATIC_CACHE] = self._static
            if not two_stacks and self.past >= self.tokens and uses_interface(self.model):
                checks[f"{LONG} {self.past}{'' if self._places else KEYS_ALONE}"] = self._long
            if not two_stacks:
                checks["left padding"] = partial(self._padded, tokens=slice(self.padding, self.prompt))
        if serves and not two_stacks and {"past_key_values", "use_cache"} <= self._arguments:
            checks["chunked prefill"] = self._chunked
        checks["right padding"] = partial(self._padded, tokens=slice(0, self.prompt - self.padding))
        if "position_ids" in self._arguments:
            checks["packed sequences"] = self._packed
        if self._specials:
            checks["special tokens"] = self._special
        return checks

    @cached_property
    def reference(self) -> Reference:
        """Kernels of a plain forward pass."""
        plain = self.served(lambda: self.forward(self.tokens))
        return {module: [*map(self._applied, calls)] for module, calls in plain.calls.items()}

    @cached_property
    def crossing(self) -> list[str]:
        """Dotted names of modules that attend to an encoder."""
        if not self._config.is_encoder_decoder:
            return []
        return [name for name, elsewhere in attending_modules(self.model).items() if elsewhere]

    def _applied(self, call: Call, row: int = 0) -> AppliedCall:
        """What a call's attention function applies in one row."""
        return applied_by(call, self.seed, self.noise, row)

    @property
    def _causal(self) -> bool:
        """Whether no query sees a key after it, as in models that generate; True where that is not known."""
        try:
            kernels = [kernel for some in self.reference.values() for kernel in some]
        except Refused:
            return True
        return not any(bool(kernel.allowed.triu(1).any()) for kernel in kernels)

    @property
    def counts_itself(self) -> bool:
        """Whether the model reads a table of positions by its own count, which padding on the left shifts."""
        return bool(self.tables) and "position_ids" not in self._arguments

    def by_default(self, record: ServingRecord) -> ServingRecord:
        """The record of a serving mode that is not required, where a limit of the class is no finding."""
        reason = self._limit_in(record) if record.verdict == "differs" else ""
        return ServingRecord(record.mode, "cannot tell", (), reason) if reason else record

    @property
    def _cooled(self) -> bool:
        """Whether queries have an attention temperature, which the library takes from places in the row."""
        return bool(getattr(self._config.get_text_config(), "attn_temperature_tuning", False))

    @property
    def _places(self) -> bool:
        """Whether a token's place is that which it is given, so that a few tokens can have any."""
        return "position_ids" in self._arguments and not self._cooled

    def _limit_in(self, record: ServingRecord) -> str:
        """The limit of the class that explains what differs in a mode; "" if none does."""
        if record.mode == "left padding" and self.counts_itself:
            return "the class takes no position_ids, so padding on the left shifts its positions"
        if self._config.model_type in COUNT_ANEW and all(one.note == BARE for one in record.findings):
            return (
                "given no positions, the library's class counts from 0 behind a cache; given them, it matches"
            )
        of_size = all(one.effective.endswith(SIZE) for one in record.findings)
        if self._cooled and of_size and record.mode in ("left padding", "packed sequences"):
            return (
                "the class counts tokens of the row for its attention temperature, whatever their positions"
            )
        return ""

    @property
    def _arguments(self) -> set[str]:
        """What the forward pass takes."""
        return {*inspect.signature(self.model.forward).parameters}

    @property
    def _config(self) -> Any:
        return self.model.config

    def served(self, run: Callable[[], Any]) -> Served:
        """What one serving mode applied.

        Raises:
            Refused: If the model does not run so.
        """
        try:
            return served_by(self.model, self.modules, [*self.tables], run, self.seed, self.crossing)
        except Exception as error:  # what a model's own code may raise is not ours to list
            first, *_ = str(error).splitlines() or [""]
            raise Refused(f"{type(error).__name__}: {first}") from error

    def forward(self, length: int, mask: Tensor | None = None, **given: Any) -> Any:
        """Run the model on so many tokens, in as many rows as the mask has."""
        return self.model(**Inputs(1 if mask is None else len(mask), length).of(self.model, mask), **given)

    def _decoded(self, mode: str, **how: Any) -> ServingRecord:
        """Prompt first, then token by token from the cache, as `generate` does it.

        Behind an encoder, which reads the prompt, a decoder begins with one token.
        """
        ids, steps = Inputs(1, self.prompt).of(self.model)["input_ids"], self.tokens - self.prompt
        received = self.served(lambda: self._generate(ids, torch.ones_like(ids), steps, **how))
        return _record(mode, self._consecutive(received) + self._crossing(received, torch.ones_like(ids)))

    def _static(self, mode: str) -> ServingRecord:
        """The same from a cache that is allocated in advance, so that it holds keys not yet written."""
        with _restored(self.model, "_previous_max_cache_length"):
            return self._decoded(mode, **STATIC)

    def _static_behind_padding(self) -> list[Discrepancy]:
        """What differs where tokens are decoded from such a cache, in rows with and without padding."""
        if not getattr(self.model, "_can_compile_fullgraph", False):
            return []
        ids, mask = self._batch(slice(self.padding, self.prompt))
        steps = min(BEHIND, self.tokens - self.prompt)
        with _restored(self.model, "_previous_max_cache_length"), contextlib.suppress(Refused):
            received = self.served(lambda: self._generate(ids, mask, steps, **STATIC))
            findings = self._misplaced_behind_padding(received)
            for module in received.calls:
                findings += self._decoded_behind_padding(module, received)
            return [replace(one, note=f"{one.note}, {FROM_STATIC}") for one in findings]
        return []  # Decoding alone says why a static cache does not run.

    def _batch(
        self, tokens: slice, rows: int = 2, padded: int = 0
    ) -> tuple[Int[Tensor, "rows t"], Int[Tensor, "rows t"]]:
        """Prompts and their mask, by which one row has padding outside `tokens`."""
        ids = Inputs(rows, self.prompt).of(self.model)["input_ids"]
        mask = torch.ones_like(ids)
        mask[padded] = 0
        mask[padded, tokens] = 1
        return ids, mask

    def _long(self, mode: str) -> ServingRecord:
        """One token behind a cache that stands for many: its query, and what its attention function sees."""
        device = next(self.model.parameters()).device

        def run(*places: int, **given: Any) -> Served:
            takes = "position_ids" in self._arguments
            named = {"position_ids": torch.tensor([places], device=device)} if takes else {}
            return self.served(lambda: self.forward(len(places), **named, **given))

        alone = run(self.past, past_key_values=cache_of(self.past))
        among = run(0, 1, self.past) if self._places else None
        findings: list[Discrepancy] = []
        for module, calls in alone.calls.items():
            call, about = calls[0], named_layer(module)
            kernel = self._applied(call)
            if others := beside_logits(kernel, self.reference[module][0]):
                findings.append(Discrepancy(f"kernel of {about}", PLAIN, others, by="expected"))
            elif not torch.equal(kernel.allowed.cpu(), call.allowed.expand(kernel.allowed.shape).cpu()):
                findings.append(Discrepancy(f"mask of {about}", "the one given", "another", by="expected"))
            if among is not None:
                wanted, got = among.calls[module][0].q[..., -1, :], call.q[..., -1, :]
                gap = (wanted - got).double().abs().max()
                if bool(gap > bound(wanted, wanted, self.noise)):
                    text = f"query off by {gap.item():.3g} at position {self.past}"
                    findings.append(Discrepancy(f"kernel of {about}", PLAIN, text, by="expected"))
        return _record(mode, findings)

    def _crossing(self, received: Served, mask: Int[Tensor, "b t"]) -> list[Discrepancy]:
        """Where a decoder does not see what is to be seen of its encoder.

        Args:
            received: What was applied.
            mask: 1 for tokens that the encoder was given, 0 for padding.
        """
        findings: list[Discrepancy] = []
        for module, calls in received.crossing.items():
            about = f"mask of cross-attention of {named_layer(module)}"
            fitting = [call for call in calls if (len(call.q), call.k.shape[2]) == mask.shape]
            for call, row in product(fitting, range(len(mask))):
                seen, wanted = self._applied(call, row).allowed[0].cpu(), mask[row].cpu() == 1
                if bool((seen & ~wanted).any()):
                    findings.append(_padding_seen(about))
                if not bool((seen | ~wanted).all()):
                    findings.append(Discrepancy(about, "all but padding seen", "some hidden", by="expected"))
        return findings

    def _chunked(self, mode: str) -> ServingRecord:
        """All tokens in chunks of unequal length, each behind the cache of those before it."""
        findings = self._in_chunks(SHORT_PROMPT)
        if not findings:
            with contextlib.suppress(Refused):  # Some models ask for positions or masks.
                findings = [replace(one, note=BARE) for one in self._in_chunks(1, bare=True)]
        return _record(mode, findings)

    def _in_chunks(self, first: int, *, bare: bool = False) -> list[Discrepancy]:
        """What differs in chunks, of which the first has so many tokens.

        Args:
            first: Tokens of the first chunk.
            bare: Whether the model is given tokens and a cache alone, and without positions or a mask.
        """
        ids = Inputs(1, self.tokens).of(self.model)["input_ids"]
        ends = sorted({0, min(first, self.prompt), min(BLOCK, self.prompt), self.prompt, self.tokens})
        places = torch.arange(self.tokens, device=ids.device)[None]

        def run() -> None:
            past: dict[str, Any] = {}
            for start, stop in pairwise(ends):
                named: dict[str, Any] = {} if bare else {"attention_mask": torch.ones_like(ids[:, :stop])}
                if not bare and "position_ids" in self._arguments:  # as `generate` gives them
                    named["position_ids"] = places[:, start:stop]
                out = self.model(input_ids=ids[:, start:stop], use_cache=True, **named, **past)
                past = {"past_key_values": out.past_key_values}

        return self._consecutive(self.served(run))

    def _consecutive(self, received: Served) -> list[Discrepancy]:
        """What differs where calls, one after the other, hold consecutive stretches of one sequence."""
        findings: list[Discrepancy] = []
        for table, looked_up in received.rows.items():
            start = 0
            for rows in map(_of_first, looked_up):
                findings += self._misplaced(table, rows[: self.tokens - start], start)  # without filling up
                start += len(rows)
        for module, calls in received.calls.items():
            each = len(self.reference[module])
            for nth in range(each):
                start = 0
                for kernel in map(self._applied, calls[nth::each]):
                    rows = slice(start, start + kernel.logits.shape[2])
                    findings += self._differing(module, kernel, rows, nth)
                    start = rows.stop
        return findings

    def _padded(self, mode: str, tokens: slice) -> ServingRecord:
        """A prompt with padding outside `tokens`, and below it one without padding.

        On the left, padding goes through `generate`, as it is served.
        """
        ids, mask = self._batch(tokens)
        left, steps = tokens.start > 0, min(BEHIND, self.tokens - self.prompt)
        received = self.served(
            lambda: self._generate(ids, mask, steps) if left else self.forward(self.prompt, mask)
        )
        findings = self._first_misplaced(received, tokens) + self._beside_misplaced(received)
        findings = findings or (self._misplaced_behind_padding(received) if left else [])
        findings += self._crossing(received, mask)
        if self.crossing and hasattr(self.model, "generate"):
            findings += self._crossing(self.served(lambda: self._generate(ids, mask, BEHIND)), mask)
        for module, calls in received.calls.items():
            kernel = self._applied(calls[0])
            findings += self._beside(module, calls[0])
            whole = kernel.allowed.shape[-1] == self.prompt  # some models put keys of their own before it
            if whole and bool(kernel.allowed[0, :, tokens, mask[0] == 0].any()):
                findings.append(_padding_seen(f"mask of {named_layer(module)}"))
            findings += self._differing(module, kernel.part(tokens), slice(0, self.prompt - self.padding))
            findings += self._decoded_behind_padding(module, received) if left else []
        findings = findings or self._last_padded(2, tokens) or self._last_padded(1, tokens)
        return _record(mode, findings or (self._static_behind_padding() if left else []))

    def _last_padded(self, rows: int, tokens: slice) -> list[Discrepancy]:
        """What differs if the last row of a batch alone has padding.

        Where queries see keys after them, it is on the left then, where the first row had it on the right.
        """
        left = tokens.start > 0
        tokens = tokens if self._causal else slice(self.padding, self.prompt)
        ids, mask = self._batch(tokens, rows, rows - 1)
        received = self.served(
            lambda: self._generate(ids, mask, 1) if left else self.forward(self.prompt, mask)
        )
        findings = self._crossing(received, mask)
        for module, calls in received.calls.items():
            call = calls[0]
            if call.sparse is not None or len(call.q) != rows or call.k.shape[2] != self.prompt:
                continue
            kernel = self._applied(call, rows - 1)
            if bool(kernel.allowed[0, :, tokens, mask[-1] == 0].any()):
                findings.append(_padding_seen(f"mask of {named_layer(module)}"))
            findings += self._differing(module, kernel.part(tokens), slice(0, self.prompt - self.padding))
            if rows > 1:
                findings += self._differing(module, self._applied(call), slice(0, self.prompt))
        note = "where the second row alone has padding" if rows > 1 else "in a batch of one row"
        return [replace(one, note=note) for one in findings]

    def _decoded_behind_padding(self, module: str, received: Served) -> list[Discrepancy]:
        """What differs in a module where tokens are decoded."""
        calls, each = received.calls[module], len(self.reference[module])
        steps = ((nth, enumerate(calls[nth + each :: each])) for nth in range(each))
        found = [self._behind_padding(module, call, step, nth) for nth, some in steps for step, call in some]
        return [one for findings in found for one in findings]

    def _behind_padding(self, module: str, call: Call, step: int, nth: int) -> list[Discrepancy]:
        """What differs where a token is decoded in a row with padding, and in one without."""
        slots, held = self.prompt + step + 1, call.k.shape[2]
        if call.sparse is not None or call.q.shape[::2] != (2, 1):
            return []  # such as models without a cache, which read everything again
        findings: list[Discrepancy] = []
        for row, padding in enumerate((self.padding, 0)):
            kernel, hidden = self._applied(call, row), max(0, padding - max(0, slots - held))
            rows = slice(slots - padding - 1, slots - padding)
            found = self._differing(module, kernel.keys_from(hidden), rows, nth)
            if bool(kernel.allowed[0, ..., :hidden].any()):
                found = [_padding_seen(f"mask of {named_layer(module)}")]
            findings += [replace(one, note=(BEHIND_PADDING, BESIDE_DECODED)[row]) for one in found]
        return findings

    def _beside_misplaced(self, received: Served) -> list[Discrepancy]:
        """What is misplaced in the row without padding."""
        lasts = {
            table: rows[0].reshape(-1, rows[0].shape[-1])[-1] for table, rows in received.rows.items() if rows
        }
        found = [self._misplaced(table, last[: self.prompt], 0) for table, last in lasts.items()]
        return [replace(one, note=BESIDE) for findings in found for one in findings]

    def _misplaced_behind_padding(self, received: Served) -> list[Discrepancy]:
        """What is misplaced where tokens are decoded in a row with padding, and in one without."""
        findings: list[Discrepancy] = []
        for table, looked_up in received.rows.items():
            for step, rows in enumerate(looked_up[1:]):
                each = rows.reshape(-1, rows.shape[-1])
                if each.shape[-1] != 1:
                    continue
                first = self._misplaced(table, each[0], self.prompt - self.padding + step)
                findings += [replace(one, note=BEHIND_PADDING) for one in first]
                second = self._misplaced(table, each[-1], self.prompt + step)
                findings += [replace(one, note=BESIDE_DECODED) for one in second]
        return findings

    def _beside(self, module: str, call: Call) -> list[Discrepancy]:
        """What differs in the row without padding.

        Nothing is known of it where only the first row is read, or the model puts keys of its own before the
        tokens.
        """
        if call.sparse is not None or len(call.q) != 2 or call.k.shape[2] != self.prompt:
            return []
        found = self._differing(module, self._applied(call, 1), slice(0, self.prompt))
        return [replace(one, note=BESIDE) for one in found]

    def _pooling(self, mode: str) -> ServingRecord:
        raise Refused("its layers pool positions, of which padding would change the number")

    def _packed(self, mode: str) -> ServingRecord:
        """Three sequences in one row, told apart by restarting positions."""
        ends = (0, self.padding, (self.padding + self.prompt) // 2, self.prompt)
        each = [slice(start, stop) for start, stop in pairwise(ends)]
        positions = torch.cat([torch.arange(one.stop - one.start) for one in each])[None]
        positions = positions.to(next(self.model.parameters()).device)
        with sequences_told_apart() as told:
            received = self.served(lambda: self.forward(self.prompt, position_ids=positions))
        kernels = {module: self._applied(calls[0]) for module, calls in received.calls.items()}
        findings: list[Discrepancy] = []
        for (which, seen), one in zip(PACKED.items(), each[1:], strict=True):
            leaking = [name for name, k in kernels.items() if bool(k.allowed[0, :, one, : one.start].any())]
            if leaking and max(told, default=1) < 2:
                return ServingRecord(mode, "cannot tell", (), MERGED)
            findings += self._first_misplaced(received, one)
            about = [f"mask of {named_layer(module)}" for module in leaking]
            text = f"{seen} seen from the {which}"
            findings += [Discrepancy(what, "sequences apart", text, by="expected") for what in about]
            for module, kernel in kernels.items():
                if convolves(self.model.get_submodule(module)):
                    continue  # whose first keys hold the tokens before them
                findings += self._differing(module, kernel.part(one), slice(0, one.stop - one.start))
        return _record(mode, findings)

    @property
    def _specials(self) -> list[int]:
        """Tokens that begin and end texts, where configuration and vocabulary have them beside padding."""
        text = self._config.get_text_config()
        stated = [getattr(text, name, None) for name in ("bos_token_id", "eos_token_id")]
        first = [one[0] if isinstance(one, list) and one else one for one in stated]
        known = [one for one in first if isinstance(one, int) and 0 <= one < getattr(text, "vocab_size", 0)]
        of_tables = (getattr(self.model.get_submodule(table), "padding_idx", None) for table in self.tables)
        padding = {getattr(text, "pad_token_id", None), *of_tables}
        return [one for one in dict.fromkeys(known) if one not in padding]

    def _special(self, mode: str) -> ServingRecord:
        """Special tokens within one text, where neither positions nor the mask may begin anew."""
        inputs, specials = Inputs(1, self.tokens).of(self.model), self._specials
        for name in {"input_ids", "decoder_input_ids"} & {*inputs}:
            inputs[name] = inputs[name].clone()
            for nth, token in enumerate(specials, 1):
                inputs[name][0, nth * self.prompt // (len(specials) + 1)] = token
        return _record(mode, self._consecutive(self.served(lambda: self.model(**inputs))))

    def _generate(self, ids: Int[Tensor, "b t"], mask: Int[Tensor, "b t"], steps: int, **how: Any) -> Any:
        generate: Any = self.model.generate
        named, pad = {}, getattr(self._config, "pad_token_id", None) or 0
        if self._config.is_encoder_decoder and getattr(self._config, "decoder_start_token_id", None) is None:
            named["decoder_start_token_id"] = pad
        return generate(
            **named,
            **how,
            forced_eos_token_id=None,
            suppress_tokens=[pad],  # whose positions some models do not count
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=steps,
            min_new_tokens=steps,
            do_sample=False,
            use_cache=True,
            pad_token_id=pad,
        )

    def _first_misplaced(self, received: Served, tokens: slice) -> list[Discrepancy]:
        """What is misplaced in the first call of each table, whose tokens begin at position 0."""
        both = (
            self._misplaced(table, _of_first(rows[0])[tokens], 0)
            for table, rows in received.rows.items()
            if rows
        )
        return [finding for findings in both for finding in findings]

    def _misplaced(self, table: str, rows: Int[Tensor, " t"], start: int) -> list[Discrepancy]:
        """The first token, if any, whose row of a table of positions is not that of its place."""
        wanted = range(self.tables[table] + start, self.tables[table] + start + len(rows))
        held = table_of(table, self.model.get_submodule(table))

        def same(a: int, b: int) -> bool:
            return a == b or (held is not None and b >= 0 and a < len(held) and torch.equal(held[a], held[b]))

        pairs = enumerate(zip(wanted, rows.tolist(), strict=True))
        wrong = ((t, a, b) for t, (a, b) in pairs if not same(a, b))
        return [
            Discrepancy(f"position of token {start + t}", f"row {a}", _row_in_words(b), by="expected")
            for t, a, b in wrong
        ][:1]

    def _differing(self, module: str, kernel: AppliedCall, rows: slice, nth: int = 0) -> list[Discrepancy]:
        """What differs in rows of a kernel, of the module's nth call in a forward pass."""
        return differing(module, kernel, self.reference[module][nth], rows, self.noise)


@contextlib.contextmanager
def _restored(model: nn.Module, name: str) -> Iterator[None]:
    """Leave an attribute that the library sets on a model as it was before the block, present or not."""
    missing = object()
    before = getattr(model, name, missing)
    try:
        yield
    finally:
        if before is not missing:
            setattr(model, name, before)
        elif hasattr(model, name):
            delattr(model, name)


def _padding_seen(about: str) -> Discrepancy:
    return Discrepancy(about, "padding hidden", "padding seen", by="expected")


def _of_first(rows: Int[Tensor, "*b t"]) -> Int[Tensor, " t"]:
    """Rows of the first sequence; some tables are asked for those of all sequences at once."""
    return rows.reshape(-1, rows.shape[-1])[0]


def _row_in_words(row: int) -> str:
    return f"row {row}" if row >= 0 else "none of its rows"


def _record(mode: str, findings: list[Discrepancy]) -> ServingRecord:
    """The record with one finding per respect, the first."""
    first = {finding.what: finding for finding in reversed(findings)}
    kept = tuple(finding for finding in findings if first[finding.what] is finding)
    return ServingRecord(mode, "differs" if kept else "matches", kept)


def _without(record: ServingRecord, alone: Mapping[str, Collection[str]]) -> ServingRecord:
    """A record without what differs in the same respects where tokens are decoded without any padding."""

    def is_told(one: Discrepancy) -> bool:
        if one.note.endswith(FROM_STATIC):
            return _respect(one) in alone.get(STATIC_CACHE, ())
        return one.note in (BEHIND_PADDING, BESIDE_DECODED) and _respect(one) in alone.get(DECODING, ())

    kept = tuple(one for one in record.findings if not is_told(one))
    if kept == record.findings:
        return record
    return replace(record, verdict="differs" if kept else "matches", findings=kept)


def _respect(finding: Discrepancy) -> str:
    """What differs, of whichever token."""
    return finding.what.partition(" of token ")[0]


def serving_modes_of(
    model: nn.Module,
    modules: list[str],
    firsts: Mapping[str, int],
    noise: float,
    seed: int,
    tokens: int,
    past: int,
) -> ServingModes:
    """The serving modes of a whole model.

    Args:
        model: In evaluation mode.
        modules: Dotted names of its attention modules.
        firsts: Row of the first position in tables of positions, where the model without its head reads them.
        noise: Relative rounding error of its arithmetic.
        seed: Of the constant content.
        tokens: Of a prompt and what is decoded after it.
        past: Tokens that a cache stands for, behind which one token is read.
    """
    absolutes: list[Absolute] = []
    with contextlib.suppress(SpectropeError, *FAILURES):  # Then no mode runs either, and each says why.
        absolutes = constant_token(model, modules, tokens)
    tables = {
        one.table: firsts.get(one.table, int(one.rows[0]))
        for one in absolutes
        if one.table and bool((one.rows.diff() == 1).all())
    }
    return ServingModes(model, modules, tables, noise, seed, tokens, past)
