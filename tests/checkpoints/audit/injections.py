"""Faults put into a model that runs: what reaches its kernels, its rotations or its tables is changed."""

import sys
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spectrope.checkpoints.adapters import layer_name

Inject = Callable[[nn.Module, pytest.MonkeyPatch], None]


class Changed:
    """The library's attention functions, whose arguments are changed on the way."""

    def __init__(self, own: Any, change: Callable[..., Any], names: dict[int, str]) -> None:
        self.own, self.change, self.names = own, change, names

    def get_interface(self, implementation: str, default: Any) -> Any:
        attend = self.own.get_interface(implementation, default)

        def call(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any = None, **options: Any) -> Any:
            layer = layer_name(self.names[id(module)])
            return attend(module, *self.change(layer, q, k, v, mask, options)[:4], **options)

        return call


def at_kernel(change: Callable[..., tuple[Tensor, Tensor, Tensor]], layers: Collection[int] = ()) -> Inject:
    """Change queries, keys and values of layers, all unless told, before the kernel sees them."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        def changed(layer: tuple[str, int], q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
            return (q, k, v, mask) if layers and layer[1] not in layers else (*change(q, k, v), mask)

        _patched(model, patch, changed)

    return inject


def options(change: Callable[[dict[str, Any]], dict[str, Any]], layers: Collection[int] = ()) -> Inject:
    """Change the options of the kernel, such as scale and cap."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        def changed(layer: tuple[str, int], q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
            if not layers or layer[1] in layers:
                given.update(change(given))
            return q, k, v, mask

        _patched(model, patch, changed)

    return inject


def attending(change: Callable[..., Any]) -> Inject:
    """Let `change` attend, given the attention function that the model's configuration chooses."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        name = model.config._attn_implementation
        homes = [sys.modules[type(module).__module__] for module in model.modules()]
        code = next(home for home in homes if hasattr(home, "eager_attention_forward"))
        own = code.eager_attention_forward if name == "eager" else ALL_ATTENTION_FUNCTIONS[name]

        def attend(
            module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any = None, **options: Any
        ) -> Any:
            def plain(q: Tensor, k: Tensor, v: Tensor, mask: Any, **changed: Any) -> Any:
                return own(module, q, k, v, mask, **options | changed)

            return change(plain, q, k, v, mask, options)

        if name == "eager":
            patch.setattr(code, "eager_attention_forward", attend)
        else:
            patch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, name, attend)

    return inject


def masked(allowed: Callable[[Tensor], Tensor], layers: Collection[int] = ()) -> Inject:
    """Give layers the mask that is drawn from the lag of query and key, with or without an axis of heads."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        def changed(layer: tuple[str, int], q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
            if layers and layer[1] not in layers:
                return q, k, v, mask
            places = torch.arange(q.shape[2])
            given["is_causal"] = False
            drawn = allowed(places[:, None] - places)
            return q, k, v, drawn[(None,) * (4 - drawn.ndim)]

        _patched(model, patch, changed)

    return inject


def _patched(model: nn.Module, patch: pytest.MonkeyPatch, change: Callable[..., Any]) -> None:
    names = {id(module): name for name, module in model.named_modules()}
    for home in {type(module).__module__ for module in model.modules()}:
        code = sys.modules[home]
        if hasattr(code, "ALL_ATTENTION_FUNCTIONS") and not home.startswith("torch"):
            own = code.ALL_ATTENTION_FUNCTIONS
            patch.setattr(code, "ALL_ATTENTION_FUNCTIONS", Changed(own, change, names))


def rotating(change: Callable[..., tuple[Tensor, Tensor]], layers: Collection[int] = ()) -> Inject:
    """Let `change` rotate queries and keys, given the model's own function and what it takes."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        running = [0]

        def enter(name: str) -> Any:
            return lambda *_: running.__setitem__(0, layer_name(name)[1])

        for name, module in model.named_modules():
            if "Attention" in type(module).__name__:
                module.register_forward_pre_hook(enter(name))
        code = next(
            sys.modules[type(module).__module__]
            for module in model.modules()
            if hasattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb")
        )
        own = code.apply_rotary_pos_emb

        def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *rest: Any, **given: Any) -> Any:
            def plain(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
                return own(q, k, cos, sin, *rest, **given)

            if layers and running[0] not in layers:
                return plain(q, k, cos, sin)
            return change(plain, q, k, cos, sin)

        patch.setattr(code, "apply_rotary_pos_emb", rotate)

    return inject


def placed(change: Callable[[Tensor], Tensor]) -> Inject:
    """Compute cosines and sines at other positions (axes, b, t) of a model under M-RoPE."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        table: Any = table_of_texts(model)
        own = table.forward
        patch.setattr(table, "forward", lambda x, position_ids: own(x, change(position_ids)))

    return inject


def table_of_texts(model: nn.Module) -> nn.Module:
    """The module that computes the cosines and sines of a model of texts."""
    names = ((type(one).__name__, one) for one in model.modules())
    return next(one for name, one in names if name.endswith("RotaryEmbedding") and "Vision" not in name)


def indexing(change: Callable[..., tuple[Tensor, Tensor]], layers: Collection[int] = ()) -> Inject:
    """Let `change` rotate the queries and keys (b, h, t, d) of indexers alone, as `rotating` does."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        for name, module in model.named_modules():
            if type(module).__name__.endswith("Indexer") and layer_name(name)[1] in (
                layers or {layer_name(name)[1]}
            ):
                patch.setattr(module, "forward", _rotating_within(module.forward, change), raising=False)

    return inject


def _rotating_within(forward: Any, change: Callable[..., tuple[Tensor, Tensor]]) -> Any:
    """A forward pass with changed rotary functions in its module."""
    code = sys.modules[forward.__self__.__class__.__module__]

    def changed(own: Any) -> Any:
        def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Any:
            def by_position(x: Tensor) -> Tensor:
                return x.transpose(1, 2) if unsqueeze_dim == 2 else x

            turned = change(own, by_position(q), by_position(k), cos, sin)
            return tuple(map(by_position, turned))

        return rotate

    def run(*args: Any, **given: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            for name in ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave"):
                if hasattr(code, name):
                    inner.setattr(code, name, changed(getattr(code, name)))
            return forward(*args, **given)

    return run


def decaying(change: Callable[[Tensor, int], Tensor], layers: Collection[int]) -> Inject:
    """Change the rates (heads,) of MiniMax's layers of linear attention, given also the layer's number."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        for name, module in model.named_modules():
            layer = layer_name(name)[1]
            if hasattr(module, "slope_rate") and layer in layers:
                rates = change(module.slope_rate.flatten(), layer)[:, None, None]
                module.slope_rate = rates
                factors = module.decay_factors(rates)
                module.query_decay, module.key_decay, module.diagonal_decay = factors

    return inject


def in_head(x: Tensor, head: int, other: Tensor) -> Tensor:
    """x with one head of another tensor."""
    return torch.cat([x[:, :head], other[:, head : head + 1], x[:, head + 1 :]], 1)


def later(cos: Tensor, sin: Tensor, by: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines at positions that are so much later."""
    c, s = cos[..., 1:2, :], sin[..., 1:2, :]
    for _ in range(by):
        cos, sin = cos * c - sin * s, sin * c + cos * s
    return cos, sin


def turned(x: Tensor, base: float = 10000.0) -> Tensor:
    """x rotated in halves at a base, as values never should be."""
    d = x.shape[-1]
    frequencies = base ** (-torch.arange(0, d, 2) / d)
    angles = torch.arange(x.shape[2])[:, None] * torch.cat([frequencies, frequencies])
    return x * angles.cos() + torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1) * angles.sin()


def looked_up(change: Callable[[Tensor], Tensor]) -> Inject:
    """Change the rows at which embeddings of positions are entered."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        for name, module in model.named_modules():
            if isinstance(module, nn.Embedding) and ("position" in name or name.endswith("wpe")):
                module.register_forward_pre_hook(lambda _, args: (change(args[0]), *args[1:]))

    return inject


def sinusoidal(change: Callable[[Tensor], Tensor]) -> Inject:
    """Change the computed table of positions."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        for module in model.modules():
            if "Sinusoid" in type(module).__name__:
                if isinstance(module, nn.Embedding):
                    module.weight.data = change(module.weight.data.clone())
                else:
                    module.weights = change(module.weights.clone())

    return inject
