"""Forward and backward of one layer's attention: explicit products against the others."""

from collections.abc import Callable, Iterator

import torch
from benchmarks.harness import Case, run
from torch.testing import assert_close

from spectrope.attention import attention
from spectrope.core.device import choose_device, choose_dtype
from spectrope.core.noise import Noise
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import Context, Encoding
from spectrope.encodings.rope import RoPE

DEVICE = choose_device()
DTYPE = choose_dtype("auto", DEVICE)
EXAMPLES, HEADS, LENGTH, HEAD_DIM, DROPOUT = 32, 16, 128, 16, 0.1

Results = tuple[torch.Tensor, ...]


def backward(
    encoding: Encoding, impl: str, dropout: float, dtype: torch.dtype = DTYPE
) -> Callable[[], Results]:
    """A call that returns the output and the gradients of queries, keys and values."""
    generator = torch.Generator().manual_seed(0)
    shape = EXAMPLES, HEADS, LENGTH, HEAD_DIM
    q, k, v, weights = (torch.randn(shape, generator=generator).to(DEVICE, dtype) for _ in range(4))
    leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
    pos = torch.arange(LENGTH, device=DEVICE)[None]

    def call() -> Results:
        noise = Noise(dropout, 0, DEVICE) if dropout else None
        out = attention(Context(q, k, pos, pos), v, encoding, causal=True, impl=impl, noise=noise)
        return out, *torch.autograd.grad(out, leaves, weights)

    return call


def case(label: str, encoding: Encoding, other: str, dropout: float) -> Case:
    """The explicit implementation beside another one."""
    encoding = encoding.to(DEVICE)
    explicit, against = (backward(encoding, impl, dropout) for impl in ("explicit", other))

    def gate() -> None:
        """float32 equal to the reference; bfloat16 at most half as far again from it as its own bfloat16."""
        exact, rounded = (backward(encoding, "reference", dropout, kind)() for kind in (torch.float32, DTYPE))
        assert_close(backward(encoding, "explicit", dropout, torch.float32)(), exact, rtol=1e-4, atol=1e-4)
        for got, reference, wanted in zip(explicit(), rounded, exact, strict=True):
            assert (got - wanted).norm() <= 1.5 * (reference - wanted).norm() + 1e-4 * wanted.norm()

    return Case(f"{label}, explicit : {other}", gate, explicit, against)


def cases() -> Iterator[Case]:
    """RoPE and ALiBi, with and without dropout, which the fused kernel does not offer."""
    rope, alibi = RoPE(RoPE.Config()), ALiBi(ALiBi.Config())
    yield case("rope", rope, "reference", 0.0)
    yield case("rope", rope, "fused", 0.0)
    yield case("alibi", alibi, "fused", 0.0)
    yield case("rope, dropout", rope, "reference", DROPOUT)


if __name__ == "__main__":
    run("attention", cases(), threads=1, repeats=9)
