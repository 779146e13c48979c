"""Forward hooks that are removed on exit."""

import contextlib
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from spectrope.core import UnsupportedError

FEED_FORWARD = re.compile(r"(^|_)(mlp|ffn?|feed_forward)$")


class Enough(Exception):  # noqa: N818
    """Ends a forward pass early, once its purpose is met."""


@contextlib.contextmanager
def before(
    model: nn.Module, names: Iterable[str], act: Callable[[str, Any, dict[str, Any]], Any]
) -> Iterator[None]:
    """Call `act` with the name, positional and named arguments of each of these modules before it runs.

    If `act` returns a value, it replaces the arguments.
    """

    def hook(name: str) -> Callable[..., Any]:
        return lambda _, args, given: act(name, args, given)

    handles = [
        model.get_submodule(name).register_forward_pre_hook(hook(name), with_kwargs=True) for name in names
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def after(model: nn.Module, names: Iterable[str], act: Callable[[str, Any], None]) -> Iterator[None]:
    """Call `act` with the name and output of each of these modules once it has run."""

    def hook(name: str) -> Callable[..., None]:
        return lambda _, __, output: act(name, output)

    handles = [model.get_submodule(name).register_forward_hook(hook(name)) for name in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def states_of(args: tuple[Any, ...], given: dict[str, Any]) -> Tensor:
    """The hidden states among a layer's arguments: the first tensor of three axes.

    Raises:
        UnsupportedError: If there is none.
    """
    named = [given["hidden_states"]] if "hidden_states" in given else []
    candidates = [value for value in (*args[:1], *named, *args, *given.values()) if isinstance(value, Tensor)]
    for value in candidates:
        if value.ndim == 3:
            return value
    for value in candidates:
        if value.ndim == 4:  # several streams
            return value
    raise UnsupportedError(
        "a layer whose arguments hold no hidden states (batch, positions, width) is not read."
    )


def with_states(args: tuple[Any, ...], given: dict[str, Any], states: Tensor) -> tuple[Any, dict[str, Any]]:
    """The arguments with other hidden states, wherever these stand among them.

    A module whose queries, keys and values come from one tensor may take it three times, as torch's does.
    """
    before = states_of(args, given)

    def other(value: Any) -> Any:
        return states if value is before else value

    return tuple(map(other, args)), {key: other(value) for key, value in given.items()}


def with_all_states(
    args: tuple[Any, ...], given: dict[str, Any], states: Tensor
) -> tuple[Any, dict[str, Any]]:
    """The arguments with other hidden states, also where a layer takes queries and keys apart.

    Where it takes more keys than queries, all of them get the first of the states. Where values alone have
    another width, each position gets the first of them.
    """
    before = states_of(args, given)
    sides: list[Any] = [*args[:3]] if all(isinstance(value, Tensor) for value in args[:3]) else []
    alike = [side.shape == before.shape for side in sides]
    values = sides[2] if alike == [True, True, False] else None

    def other(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype != before.dtype:
            return value
        if value.shape == before.shape:
            return states
        if value is values and value.shape[:2] == before.shape[:2]:
            return value[:, :1].expand_as(value)
        pooled = any(value is side for side in sides) and value.shape[::2] == before.shape[::2]
        return states[:, :1].expand_as(value) if pooled and len(sides) == 3 else value

    named = {key: value if "pos" in key else other(value) for key, value in given.items()}
    return tuple(map(other, args)), named


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Context manager that disables dropout and restores the mode of every module on exit."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, before in training.items():
            module.training = before


@contextlib.contextmanager
def running(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Context manager that replaces the forward method of a module."""
    previous = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if previous is not None:
            module.forward = previous


@contextlib.contextmanager
def idle_feed_forwards(model: nn.Module, attending: Collection[str]) -> Iterator[None]:
    """Context manager in which feed-forward layers return zeros, which saves most of a forward pass. This
    does not affect probes that replace the input of every attention layer. A module counts as a feed-forward
    layer if its name says so, it is a sibling of an attention module or of one of its ancestors, and it maps
    one token, alone or with its residual, to a tensor of the same shape; a layer that also returns the
    choices of a router does not. BERT's consists of two modules, which hand on the residual instead.

    Args:
        model: In evaluation mode.
        attending: Dotted names of its attention modules.
    """
    parts = [name.split(".") for name in attending]
    around = {".".join(part[:depth]) for part in parts for depth in range(len(part))}
    idle = [
        module
        for block in around
        for name, module in model.get_submodule(block).named_children()
        if FEED_FORWARD.search(name) and f"{block}.{name}".lstrip(".") not in {*around, *attending}
    ]
    with contextlib.ExitStack() as stack:
        for module in idle:
            stack.enter_context(running(module, _idle(module.forward)))
        for block in around:
            parts = dict(model.get_submodule(block).named_children())
            first, second = parts.get("intermediate"), parts.get("output")
            if first is not None and second is not None and _is_linear(first):
                halves = _IdleHalves(first.forward, second.forward)
                stack.enter_context(running(first, halves.widen))
                stack.enter_context(running(second, halves.narrow))
        yield


@contextlib.contextmanager
def equal_tokens_once(model: nn.Module, attending: Collection[str]) -> Iterator[None]:
    """Context manager in which the linear layers of attention modules map one token where all are equal.

    Constant content makes them equal, and projections then take most of a forward pass. Only layers of
    torch's own class do so, as nothing else is sure to map each token alone.

    Args:
        model: In evaluation mode.
        attending: Dotted names of its attention modules.
    """
    inner = {part for name in attending for part in model.get_submodule(name).modules()}
    with contextlib.ExitStack() as stack:
        for module in inner:
            if type(module) is nn.Linear and "forward" not in vars(module):
                stack.enter_context(running(module, functools.partial(_once, module)))
        yield


def _once(layer: nn.Linear, x: Tensor) -> Tensor:
    """What a linear layer makes of tokens, computed for the first alone where the others equal it."""
    first = x[..., :1, :]
    alike = x.ndim > 2 and torch.equal(x[..., -1:, :], first) and torch.equal(x, first.expand_as(x))
    out = linear(first if alike else x, layer.weight, layer.bias)
    return out.expand(*x.shape[:-1], layer.out_features).contiguous() if alike else out


@contextlib.contextmanager
def idle_head(model: nn.Module, token: int | None = None) -> Iterator[None]:
    """Let a linear output head predict one token while the block runs, or equal logits, if none matters."""
    find: Any = getattr(model, "get_output_embeddings", lambda: None)
    head = find()
    if not isinstance(head, nn.Linear):
        yield
        return
    logits = torch.zeros(head.out_features)
    if token is not None and token < head.out_features:
        logits[token] = 1.0
    with running(head, lambda x: logits.to(x).expand(*x.shape[:-1], -1)):
        yield


def _idle(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Zeros in the place of a function of hidden states that keeps the shape of one token."""
    keeps_shape: bool | None = None

    def idle(*args: Any, **given: Any) -> Any:
        nonlocal keeps_shape
        alone = len(args) in (1, 2) and not given and all(map(_are_states, args))
        if not alone or args[-1].shape != args[0].shape or keeps_shape is False:
            return forward(*args, **given)
        if keeps_shape is None:
            tokens = [states[:1, :1] for states in args]
            output = forward(*tokens)
            keeps_shape = isinstance(output, Tensor) and output.shape == tokens[0].shape
        return torch.zeros_like(args[0]) if keeps_shape else forward(*args)

    return idle


class _IdleHalves:
    """Both halves of a feed-forward layer, of which the second adds a residual to what the first puts out.

    Args:
        first: Maps hidden states to wider ones.
        second: Maps these and the residual to hidden states.
    """

    def __init__(self, first: Callable[..., Any], second: Callable[..., Any]) -> None:
        self.first, self.second = first, second
        self.width: int | None = None
        self.zeros: Tensor | None = None

    def widen(self, *args: Any, **given: Any) -> Any:
        """Zeros as wide as the output of the first half."""
        if len(args) != 1 or given or not _are_states(args[0]):
            return self.first(*args, **given)
        states = args[0]
        if self.width is None:
            self.width = self.first(states[:1, :1]).shape[-1]
        self.zeros = states.new_zeros(1).expand(*states.shape[:-1], self.width)
        return self.zeros

    def narrow(self, *args: Any, **given: Any) -> Any:
        """The residual beside these zeros; what the second half makes of anything else."""
        beside = len(args) == 2 and not given and args[0] is self.zeros and _are_states(args[1])
        return args[1] if beside else self.second(*args, **given)


def _is_linear(half: nn.Module) -> bool:
    """Whether a half maps the last axis; SqueezeBERT's convolutions map the one before."""
    return any(isinstance(part, nn.Linear) for part in half.modules())


def _are_states(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 3
