"""A model as it is served, and what its kernels and positions are compared with."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import FAILURES, Call, Inputs, plain_generation
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.serving.kernels import (
    AppliedCall,
    Refused,
    applied_by,
    differing,
    named_layer,
)
from spectrope.checkpoints.audit.serving.tokens import STEPS
from spectrope.checkpoints.probes.constant_content import attending_modules
from spectrope.checkpoints.probes.constant_token import Absolute, constant_token, table_of
from spectrope.checkpoints.probes.served import Served, served
from spectrope.checkpoints.probes.varied_content import Varied, varied_outputs
from spectrope.core import SpectropeError, torch_stream

TEXTS = 5  # In one pass, at most.
Reference = dict[str, list[AppliedCall]]  # Of each call that a module makes in one forward pass.


@dataclass(frozen=True)
class ServedModel:
    """A model that runs in serving modes, with constant or varied content in every attention layer.

    Args:
        model: The whole model, in evaluation mode.
        modules: Dotted names of its attention modules.
        tables: Row of the first position in each table of positions, by its dotted name.
        noise: Relative rounding error of the model's arithmetic.
        seed: Of the content.
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

    @cached_property
    def reference(self) -> Reference:
        """Kernels of a plain forward pass."""
        plain = self.plain_pass
        return {module: [*map(self.applied, calls)] for module, calls in plain.calls.items()}

    @cached_property
    def plain_pass(self) -> Served:
        """What a plain forward pass applies."""
        return self.served(lambda: self.forward(self.tokens))

    @cached_property
    def crossing(self) -> list[str]:
        """Dotted names of modules that attend to an encoder."""
        if not self.config.is_encoder_decoder:
            return []
        return [name for name, elsewhere in attending_modules(self.model).items() if elsewhere]

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def arguments(self) -> set[str]:
        """What the forward pass takes."""
        return {*inspect.signature(self.model.forward).parameters}

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @cached_property
    def causal(self) -> bool:
        """Whether no query sees a key after it, as in models that generate; True where that is not known."""
        try:
            kernels = [kernel for some in self.reference.values() for kernel in some]
        except Refused:
            return True
        return not any(bool(kernel.allowed.triu(1).any()) for kernel in kernels)

    @property
    def counts_itself(self) -> bool:
        """Whether the model reads a table of positions by its own count, which padding on the left shifts."""
        return bool(self.tables) and "position_ids" not in self.arguments

    @property
    def cooled(self) -> bool:
        """Whether queries have an attention temperature, which the library takes from places in the row."""
        return bool(getattr(self.config.get_text_config(), "attn_temperature_tuning", False))

    def served(self, run: Callable[[], Any]) -> Served:
        """What one serving mode applied.

        Raises:
            Refused: If the model does not run so.
        """
        with _refusing():
            return served(self.model, self.modules, [*self.tables], run, self.seed, self.crossing)

    def varied(self, run: Callable[[], Any], places: Int[Tensor, "b n"]) -> Varied:
        """What attention layers put out for varied content in one serving mode, and what enters the first.

        Args:
            run: Runs the model.
            places: The place of the token in each slot of each row.

        Raises:
            Refused: If the model does not run so.
        """
        with _refusing():
            calls = self.plain_pass.runs | dict.fromkeys(self.crossing, 1)
            return varied_outputs(self.model, calls, self.crossing, run, places, self._vectors)

    def plain(self, tokens: int, number: int = 0) -> Varied:
        """The same in a plain forward pass over so many tokens, or more where none sees those after it.

        Args:
            tokens: Of a text.
            number: Of the text.
        """
        tokens = self.tokens if self.causal else tokens
        if (tokens, number) not in self._plain:
            places = self.places(self.tokens, number)[None]
            self._plain[tokens, number] = self.varied(lambda: self.forward(tokens), places)
        return self._plain[tokens, number]

    def places(self, tokens: int, number: int) -> Int[Tensor, " t"]:
        """Where the vectors of the first tokens of a text are among those of all texts."""
        return number * self.tokens + torch.arange(tokens)

    def _vectors(self, width: int) -> Float[Tensor, "places c"]:
        """A random vector for each token of each text."""
        if width not in self._content:
            stream = torch_stream(self.seed, "varied content")
            self._content[width] = torch.randn(TEXTS * self.tokens, width, generator=stream)
        return self._content[width]

    @cached_property
    def _plain(self) -> dict[tuple[int, int], Varied]:
        return {}

    @cached_property
    def _content(self) -> dict[int, Float[Tensor, "places c"]]:
        return {}

    def forward(self, length: int, mask: Tensor | None = None, **given: Any) -> Any:
        """Run the model on so many tokens, in as many rows as the mask has."""
        return self.model(**Inputs(1 if mask is None else len(mask), length).of(self.model, mask), **given)

    def in_pieces(
        self,
        ids: Int[Tensor, "b t"],
        ends: Sequence[int],
        *,
        bare: bool = False,
        between: Callable[[int, Any], Any] = lambda _, cache: cache,
    ) -> None:
        """Run the model on tokens in several passes, each behind the cache of those before it.

        Args:
            ids: The tokens.
            ends: Where each pass ends.
            bare: Whether the model is given tokens and a cache alone, and without positions or a mask.
            between: Makes the cache of the next pass of the end of one and the cache that it leaves.
        """
        places, past = torch.arange(ids.shape[1], device=ids.device).expand_as(ids), {}
        for start, stop in pairwise((0, *ends)):
            named: dict[str, Any] = {} if bare else {"attention_mask": torch.ones_like(ids[:, :stop])}
            if not bare and "position_ids" in self.arguments:  # as `generate` gives them
                named["position_ids"] = places[:, start:stop]
            out = self.model(input_ids=ids[:, start:stop], use_cache=True, **named, **past)
            past = {"past_key_values": between(stop, out.past_key_values)}

    def generate(self, ids: Int[Tensor, "b t"], mask: Int[Tensor, "b t"], steps: int, **how: Any) -> Any:
        """Decode so many tokens greedily behind prompts, in the library's own way.

        Beams, guidance and other ways to choose tokens that a checkpoint asks for are left aside.
        """
        generate: Any = self.model.generate
        named, pad = {}, getattr(self.config, "pad_token_id", None) or 0
        if self.config.is_encoder_decoder and getattr(self.config, "decoder_start_token_id", None) is None:
            named["decoder_start_token_id"] = pad
        with plain_generation(self.model):
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

    def applied(self, call: Call, row: int = 0) -> AppliedCall:
        """What a call's attention function applies in one row."""
        return applied_by(call, self.seed, self.noise, row)

    def consecutive(self, received: Served) -> list[Discrepancy]:
        """What differs where calls, one after the other, hold consecutive stretches of one sequence."""
        findings: list[Discrepancy] = []
        for table, looked_up in received.rows.items():
            start = 0
            for rows in map(first_sequence, looked_up):
                findings += self.misplaced(table, rows[: self.tokens - start], start)  # without filling up
                start += len(rows)
        for module, calls in received.calls.items():
            each = len(self.reference[module])
            for nth in range(each):
                start = 0
                for kernel in map(self.applied, calls[nth::each]):
                    rows = slice(start, start + kernel.logits.shape[2])
                    findings += self.differing(module, kernel, rows, nth)
                    start = rows.stop
        return findings

    def differing(self, module: str, kernel: AppliedCall, rows: slice, nth: int = 0) -> list[Discrepancy]:
        """What differs in rows of a kernel, of the module's nth call in a forward pass."""
        return differing(module, kernel, self.reference[module][nth], rows, self.noise)

    def across(self, received: Served, mask: Int[Tensor, "b t"]) -> list[Discrepancy]:
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
                seen, wanted = self.applied(call, row).allowed[0].cpu(), mask[row].cpu() == 1
                if bool((seen & ~wanted).any()):
                    findings.append(Discrepancy(about, "padding hidden", "padding seen", by="expected"))
                if not bool((seen | ~wanted).all()):
                    findings.append(Discrepancy(about, "all but padding seen", "some hidden", by="expected"))
        return findings

    def first_misplaced(self, received: Served, tokens: slice) -> list[Discrepancy]:
        """What is misplaced in the first call of each table, whose tokens begin at position 0."""
        both = (
            self.misplaced(table, first_sequence(rows[0])[tokens], 0)
            for table, rows in received.rows.items()
            if rows
        )
        return [finding for findings in both for finding in findings]

    def misplaced(self, table: str, rows: Int[Tensor, " t"], start: int) -> list[Discrepancy]:
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


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Whatever a model's own code raises, as a refusal."""
    try:
        yield
    except Refused:
        raise
    except Exception as error:  # what it may raise is not ours to list
        first, *_ = str(error).splitlines() or [""]
        raise Refused(f"{type(error).__name__}: {first}") from error


def first_sequence(rows: Int[Tensor, "*b t"]) -> Int[Tensor, " t"]:
    """Rows of the first sequence; some tables are asked for those of all sequences at once."""
    return rows.reshape(-1, rows.shape[-1])[0]


def _row_in_words(row: int) -> str:
    return f"row {row}" if row >= 0 else "none of its rows"


def served_model(
    model: nn.Module,
    modules: list[str],
    firsts: Mapping[str, int],
    noise: float,
    seed: int,
    tokens: int,
    past: int,
) -> ServedModel:
    """A whole model, with its tables of positions.

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
    return ServedModel(model, modules, tables, noise, seed, tokens, past)
