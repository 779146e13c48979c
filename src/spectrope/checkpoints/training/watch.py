"""Training hook that records selected heads, and reports when a measured encoding changes."""

import contextlib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from spectrope.checkpoints.adapters import layer_name, trained_length
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.checkpoints.trackers.base import Tracker
from spectrope.checkpoints.training.expected import departures, expected_layers, watched
from spectrope.checkpoints.training.heard import HeardLayer, Listener
from spectrope.checkpoints.training.measures import head_measures
from spectrope.core import ConfigError, SpectropeError, SpectropeWarning

ON_MOVE = ("stop", "warn")


class EncodingMovedError(SpectropeError):
    """The measured encoding of a layer changed during training."""


@dataclass(frozen=True)
class TrainingMove:
    """One respect in which a layer applies another encoding than when training began.

    Args:
        step: Training step, from 0, in whose forward pass it was measured.
        layer: Stack and number of the layer.
        finding: What moved.
    """

    step: int
    layer: str
    finding: Discrepancy

    def __str__(self) -> str:
        return f"step {self.step}, layer {self.layer}: {self.finding.code} {self.finding}"


class EncodingWatch:
    """Watches a model that trains; `watch_training` makes one.

    Args:
        model: A Hugging Face model, or an `OwnModel`.
        heads: Dotted names of attention modules, each with the heads to record.
        every: Number of steps between measurements.
        positions: Positions of the first example that are measured at most.
        on_move: Whether a moved encoding stops the training or warns.
        trackers: Where the numbers go.
    """

    def __init__(
        self,
        model: nn.Module,
        heads: dict[str, list[int]],
        every: int,
        positions: int,
        on_move: str,
        trackers: Sequence[Tracker],
    ) -> None:
        self.every, self.on_move, self.trackers = every, on_move, tuple(trackers)
        self.steps = 0
        self.moves: list[TrainingMove] = []
        self.records: list[dict[str, float]] = []
        self._expected = expected_layers(model, [*heads], min(positions, trained_length(model) or positions))
        for module, chosen in heads.items():
            n_heads = self._expected[module].n_heads
            if wrong := [head for head in chosen if not 0 <= head < n_heads]:
                raise ConfigError(f"layer {_name(module)} has {n_heads} heads; got head {wrong[0]}.")
        self._listener = Listener(model, heads, positions)
        self._passes = contextlib.ExitStack()
        self._handles = [
            model.register_forward_pre_hook(self._begin, with_kwargs=True),
            model.register_forward_hook(self._end, always_call=True),
        ]
        self._readable: dict[str, bool] = {}  # Layers heard so far, and whether their changes are detected.
        self._deaf = False  # Whether it was said that a step showed nothing.
        self._off: set[tuple[str, str]] = set()  # Layers and respects that had moved at the last measurement.

    def _begin(self, model: nn.Module, _: Any, given: dict[str, Any]) -> None:
        """Listen to the first forward pass in training mode of a step that is due."""
        if model.training and self.steps % self.every == 0 and not self._listener.heard:
            positions = given.get("position_ids")
            positions = positions if isinstance(positions, Tensor) and positions.ndim == 2 else None
            self._passes.enter_context(self._listener.listening(positions))

    def _end(self, *_: Any) -> None:
        self._passes.close()

    def step(self) -> list[TrainingMove]:
        """End a training step: measure what its forward pass showed, send it to the trackers, and compare.

        Returns:
            What moved in this step, and had not at the measurement before.

        Raises:
            EncodingMovedError: If something did and `on_move` is "stop".
        """
        heard, self._listener.heard = self._listener.heard, {}
        at, self.steps = self.steps, self.steps + 1
        if not heard:
            self._tell_of_nothing(at)
            return []
        values = self._measured(heard)
        self.records.append({"step": at, **values})
        for tracker in self.trackers:
            tracker.log(values, at)
        return self._compared(heard, at)

    def _tell_of_nothing(self, step: int) -> None:
        """Warn, once, of a step that was to be measured and showed no forward pass in training mode."""
        if step % self.every == 0 and not self._deaf:
            self._deaf = True
            why = f"nothing was measured in step {step}: no forward pass of the model ran in training mode"
            warnings.warn(f"{why}; call model.train() before it, and step() after it.", SpectropeWarning, 4)

    def _measured(self, heard: dict[str, HeardLayer]) -> dict[str, float]:
        values: dict[str, float] = {}
        for module, layer in heard.items():
            measures = head_measures(layer, self._expected[module].layout)
            for head, found in zip(layer.heads, measures, strict=True):
                place = f"layer_{_name(module).replace(' ', '_')}/head_{head}"
                values |= {f"{place}/{name}": value for name, value in found.items()}
        return values

    def _compared(self, heard: dict[str, HeardLayer], step: int) -> list[TrainingMove]:
        off: list[TrainingMove] = []
        unseen: list[str] = []
        for module in heard.keys() - self._readable.keys():
            self._readable[module] = watched(self._expected[module], heard[module])
            if not self._readable[module]:
                unseen.append(_name(module))
        for module, layer in heard.items():
            name, readable = _name(module), self._readable[module]
            for finding in departures(self._expected[module], layer, readable=readable):
                off.append(TrainingMove(step, name, finding))
        new = [move for move in off if (move.layer, move.finding.what) not in self._off]
        self._off = {(move.layer, move.finding.what) for move in off}
        self.moves += new
        if unseen:
            layers = ", ".join(sorted(unseen))
            warnings.warn(
                f"changes of the encoding cannot be detected in layers {layers}", SpectropeWarning, 3
            )
        if new:
            told = "; ".join(map(str, new))
            if self.on_move == "stop":
                raise EncodingMovedError(f"the encoding changed during training: {told}.")
            warnings.warn(f"the encoding changed during training: {told}.", SpectropeWarning, 3)
        return new

    def close(self) -> None:
        """Remove the hooks and close the trackers."""
        self._end()
        for handle in self._handles:
            handle.remove()
        for tracker in self.trackers:
            tracker.close()

    def __enter__(self) -> "EncodingWatch":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def callback(self) -> Any:
        """A callback for `transformers.Trainer`, which ends each step, and this watch with the training.

        Where `on_move` is "stop", it asks the trainer to stop after the step in which an encoding moved.

        Raises:
            UnsupportedError: If transformers is missing.
        """
        from spectrope.checkpoints.adapters.trainer import trainer_callback

        return trainer_callback(self.step, self.close, EncodingMovedError)


def watch_training(
    model: nn.Module,
    heads: Iterable[tuple[int, int]] | None = None,
    *,
    every: int = 20,
    positions: int = 64,
    on_move: str = "warn",
    trackers: Sequence[Tracker] = (),
) -> EncodingWatch:
    """Record what heads do with position during training, and report when a measured encoding changes.
    Queries and keys are read from the forward passes of the training; no passes are added. Call `step` of the
    returned object at the end of every training step, or pass its `callback()` to a `transformers.Trainer`.

    Args:
        model: A Hugging Face model, or an `OwnModel`, before it is compiled.
        heads: Pairs of layer and head; None takes head 0 of every layer.
        every: Number of steps between measurements.
        positions: Maximum number of positions to measure in the first example, at least 8.
        on_move: "warn", or "stop", which raises `EncodingMovedError` from `step` and stops a trainer.
        trackers: Trackers that receive the values, such as `sp.tracker("tensorboard")`.

    Raises:
        ConfigError: If there is no such layer or head, or a number is too small.
        UnsupportedError: If no attention kernel could be observed.

    Example:
        >>> import torch, spectrope as sp
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, num_attention_heads=4, **sizes)).train()
        >>> ids = torch.randint(50, (2, 16))
        >>> with sp.watch_training(model, [(0, 1)], every=1) as watch:
        ...     _ = model(input_ids=ids, labels=ids)
        ...     _ = watch.step()
        >>> sorted(watch.records[0])[:2]
        ['layer_0/head_1/band_0', 'layer_0/head_1/band_1']
    """
    if every < 1 or positions < 8:
        raise ConfigError(
            f"watch_training measures every step or fewer, at 8 positions or more; got every={every}, "
            f"positions={positions}."
        )
    if on_move not in ON_MOVE:
        raise ConfigError(f"watch_training(on_move=...) must be 'stop' or 'warn'; got {on_move!r}.")
    return EncodingWatch(model, _chosen(model, heads), every, positions, on_move, trackers)


def _chosen(model: nn.Module, heads: Iterable[tuple[int, int]] | None) -> dict[str, list[int]]:
    """The heads of each attention module."""
    was_training = model.training
    modules = attention_modules(model.eval())
    model.train(was_training)
    numbers = {module: layer_name(module)[1] for module in modules}
    if heads is None:
        return {module: [0] for module in modules}
    chosen: dict[str, list[int]] = {}
    for layer, head in heads:
        places = [module for module, number in numbers.items() if number == layer]
        if not places:
            raise ConfigError(
                f"watch_training(heads=...) must name layers with attention, {_listed(numbers.values())}; "
                f"got layer {layer}."
            )
        for module in places:
            chosen.setdefault(module, []).append(head)
    return chosen


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(numbers))))


def _name(module: str) -> str:
    stack, layer = layer_name(module)
    return f"{stack} {layer}".strip()
