"""Encodings of 2023 to 2026, against loops over their definitions."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from transformers import DiffLlamaConfig, Llama4TextConfig
from transformers.models.diffllama import modeling_diffllama
from transformers.models.llama4 import modeling_llama4
from transformers.models.ministral3 import modeling_ministral3

from spectrope.attention import attention
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.alibi import ALiBi, alibi_slopes
from spectrope.encodings.base import ENCODINGS, Context
from spectrope.encodings.complexformer import ComplexFormer
from spectrope.encodings.decay import FoX
from spectrope.encodings.differential import Differential
from spectrope.encodings.drope import DRoPE
from spectrope.encodings.faithful import Faithful
from spectrope.encodings.grape import GRAPE
from spectrope.encodings.grape_ap import GRAPEPath
from spectrope.encodings.gray import GrayCode, gray_code
from spectrope.encodings.imaginary import RoPEPlusPlus
from spectrope.encodings.linear_attention import LinearAttention
from spectrope.encodings.log_distance import LogDistance
from spectrope.encodings.nope import NoPE
from spectrope.encodings.pope import PoPE
from spectrope.encodings.retnet import RetNet
from spectrope.encodings.rope import RoPE
from spectrope.encodings.shaw import Shaw
from spectrope.encodings.temperature import Temperature
from spectrope.encodings.token_rotary import CARoPE, SelectiveRoPE
from spectrope.encodings.wavelet import Wavelet
from spectrope.encodings.weierstrass import Weierstrass, weierstrass

B, N, H, D, C = 2, 8, 4, 8, 10
SIZES = {"d_model": C, "n_heads": H, "head_dim": D, "max_length": N}


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context(n=N):
    pos, x = torch.arange(n)[None], draw(B, n, C, seed=2)
    return Context(draw(B, H, n, D), draw(B, H, n, D, seed=1), pos, pos, x, x)


def built(config):
    encoding = config.fitted(**SIZES).build().double()
    with torch.no_grad():
        for number, parameter in enumerate(encoding.parameters()):
            parameter += 0.2 * draw(*parameter.shape, seed=10 + number)
    return encoding


def pairs(x):
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())


class TestDRoPE:
    def test_headings_count_modulo_a_full_turn(self):
        drope, ctx = built(DRoPE.Config()), context()
        headings = draw(1, N)
        logits = drope(ctx.q, ctx.k, headings, headings)
        assert_close(drope(ctx.q, ctx.k, headings + 2 * math.pi, headings), logits)
        rope = built(RoPE.Config())
        assert not torch.allclose(
            rope(ctx.q, ctx.k, headings + 2 * math.pi, headings), rope(ctx.q, ctx.k, headings, headings)
        )

    def test_a_logit_turns_the_complex_product_by_the_difference_of_headings(self):
        ctx, headings = context(), draw(1, N)
        logits = DRoPE(head_dim=D)(ctx.q, ctx.k, headings, headings)
        product = torch.einsum("bhim,bhjm->bhij", pairs(ctx.q), pairs(ctx.k).conj())
        angle = headings[0, :, None] - headings[0, None]
        assert_close(logits, (product * torch.exp(1j * angle)).real / math.sqrt(D))


class TestFaithful:
    @pytest.mark.parametrize("length", [7, 8, 9])
    def test_coefficients_are_those_of_the_position_and_give_it_back(self, length):
        encoding = Faithful(d_model=C, max_length=length)
        added = encoding.embed(torch.zeros(1, length, C).double(), torch.arange(length)[None])[0]
        assert_close(added @ added.T, torch.eye(length).double())
        transform = torch.fft.rfft(torch.eye(length).double(), norm="ortho")
        scale = torch.full((length // 2 + 1,), math.sqrt(2)).double()
        scale[0] = 1
        scale[-1] = 1 if length % 2 == 0 else math.sqrt(2)
        energies = (transform.abs() * scale).square().sum(-1)
        assert_close(added.square().sum(-1), energies)
        assert_close(added[:, 1], transform[:, 1].real * math.sqrt(2))
        assert_close(added[:, 2], -transform[:, 1].imag * math.sqrt(2))

    def test_a_narrow_model_takes_frequencies_from_everywhere(self):
        narrow = Faithful(d_model=4, max_length=64)
        frequencies = narrow.frequencies.value
        assert len(frequencies) == 4
        assert_close(frequencies[[0, -1]], torch.tensor([0.0, math.pi]).double())


class TestSpiking:
    def test_neighbours_differ_in_one_bit_and_powers_of_two_in_two(self):
        position = torch.arange(200)
        for power in range(7):
            apart = gray_code(position, 12) != gray_code(position + 2**power, 12)
            assert (apart.sum(-1) == (1 if power == 0 else 2)).all()
        assert gray_code(torch.tensor([5]), 4).tolist() == [[1, 1, 1, 0]]

    def test_the_bias_counts_equal_bits(self):
        bias = GrayCode(bits=4, amplitude=0.5).bias(context())
        codes = ["0000", "0001", "0011", "0010", "0110", "0111", "0101", "0100"]
        for i, j in [(0, 0), (7, 2), (5, 4), (1, 6)]:
            equal = sum(a == b for a, b in zip(codes[i], codes[j], strict=True))
            assert float(bias[0, 0, i, j]) == 0.5 * equal

    def test_logarithms_of_the_distance_by_hand(self):
        bias = LogDistance(n_heads=2, max_length=32, amplitude=2.0).lag_bias(
            torch.tensor([0, 1, 3, 4, 31, 500])
        )
        assert bias[:, 1].tolist() == [10.0, 8.0, 6.0, 4.0, 0.0, 0.0]


class TestPoPE:
    def test_the_sum_over_coordinates(self):
        pope, ctx = built(PoPE.Config(base=100.0)), context()
        logits, delta = pope.logits(ctx).detach(), pope.delta.detach().clamp(-2 * math.pi, 0)
        for h, i, j in [(0, 5, 2), (3, 1, 7), (2, 4, 4)]:
            expected = sum(
                math.log1p(math.exp(ctx.q[0, h, i, c]))
                * math.log1p(math.exp(ctx.k[0, h, j, c]))
                * math.cos((j - i) * 100.0 ** (-c / D) + delta[h, 0, c])
                for c in range(D)
            )
            assert_close(float(logits[0, h, i, j]), expected / math.sqrt(D))

    def test_what_a_key_contains_does_not_move_the_peak_of_one_coordinate(self):
        """RoPE's does: the angle of a key's pair shifts the lag at which it is largest."""
        pope = PoPE(n_heads=1, head_dim=2, base=100.0)
        far = torch.arange(30)[None]
        q = torch.tensor([[[[3.0, -40.0]]]]).double()
        peaks = {
            int(pope(q, key.expand(1, 1, 30, 2), torch.tensor([[29]]), far).argmax())
            for key in torch.tensor([[1.0, 2.0], [-1.0, 2.0], [0.5, -3.0]]).double()
        }
        assert len(peaks) == 1

    def test_gradients_pass_where_a_phase_is_clamped(self):
        pope, ctx = PoPE(n_heads=H, head_dim=D), context()
        with torch.no_grad():
            pope.delta.fill_(1.0)
        pope.logits(ctx).tril().sum().backward()
        assert float(pope.delta.grad.abs().min()) > 0


class TestRoPEPlusPlus:
    def test_halves_of_the_heads_are_real_and_imaginary_parts_of_one_sum(self):
        encoding, ctx = built(RoPEPlusPlus.Config()), context()
        logits = encoding.logits(ctx)
        lag, frequencies = ctx.lag[0], 10000.0 ** -(torch.arange(0, D, 2).double() / D)
        turn = torch.exp(1j * lag[..., None] * frequencies)
        total = torch.einsum("bhim,bhjm,ijm->bhij", pairs(ctx.q), pairs(ctx.k).conj(), turn)[:, : H // 2]
        assert_close(logits[:, : H // 2], total.real / math.sqrt(D))
        # -Im of the sum with the conjugate convention of the paper, whose exponent has the other sign.
        assert_close(logits[:, H // 2 :], total.imag / math.sqrt(D))

    def test_an_odd_number_of_heads_is_refused(self):
        with pytest.raises(ConfigError, match="n_heads must be even"):
            RoPEPlusPlus(n_heads=3)


class TestTokenRotaries:
    def test_carope_accumulates_powers_of_a_map_of_each_token(self):
        carope, ctx = built(CARoPE.Config()), context()
        logits, pace = carope.logits(ctx), 1 / (1 + F.softplus(ctx.x_k @ carope.map.weight.T))
        q, k = (torch.complex(*x.chunk(2, -1)) for x in (ctx.q, ctx.k))
        for b, h, i, j in [(0, 0, 6, 2), (1, 3, 7, 0), (1, 1, 3, 3)]:
            expected = 0.0
            for m in range(D // 2):
                angle = sum(pace[b, t, h] ** m for t in range(j + 1, i + 1))
                expected += (
                    q[b, h, i, m] * k[b, h, j, m].conj() * torch.exp(1j * torch.as_tensor(angle))
                ).real
            assert_close(logits[b, h, i, j], expected / math.sqrt(D))

    def test_carope_with_an_equal_pace_is_rope(self):
        """A map that gives every token the ratio of RoPE's frequencies turns as RoPE does."""
        carope, ctx = built(CARoPE.Config()), context()
        ratio = 10000.0 ** (-2 / D)
        wanted = math.log(math.expm1(1 / ratio - 1))
        x = torch.zeros(B, N, C).double()
        x[..., 0] = 1
        with torch.no_grad():
            carope.map.weight.zero_()
            carope.map.weight[:, 0] = wanted
        logits = carope(ctx.q, ctx.k, x_q=x, x_k=x)
        assert_close(logits, RoPE(head_dim=D, pairs="halves")(ctx.q, ctx.k))

    def test_selective_rope_in_a_loop(self):
        encoding, ctx = built(SelectiveRoPE.Config(rank=3, kernel=3, base=50.0)), context()
        logits = encoding.logits(ctx)
        x = ctx.x_k / ctx.x_k.norm(dim=-1, keepdim=True)
        flat = x @ encoding.down.weight.T @ encoding.up.weight.T
        taps = encoding.convolution.weight[:, 0]
        turned = torch.zeros(B, N, H * D // 2).double()
        for t in range(N):
            for back in range(3):
                if t - back >= 0:
                    turned[:, t] += taps[:, 2 - back] * flat[:, t - back]
        gate = torch.sigmoid(x @ encoding.gate.weight.T + encoding.gate.bias)
        steps = turned.unflatten(-1, (H, D // 2)) * gate[..., None]
        frequencies = 50.0 ** -(torch.arange(0, D, 2).double() / D)
        angles = steps.cumsum(1) * frequencies
        q, k = (torch.complex(*y.chunk(2, -1)) for y in (ctx.q, ctx.k))
        for b, h, i, j in [(0, 0, 6, 2), (1, 3, 7, 0)]:
            turn = torch.exp(1j * (angles[b, i, h] - angles[b, j, h]))
            assert_close(
                logits[b, h, i, j], (q[b, h, i] * k[b, h, j].conj() * turn).real.sum() / math.sqrt(D)
            )

    def test_hidden_states_are_needed(self):
        ctx = context()
        for encoding in (CARoPE(n_heads=H, head_dim=D), GRAPEPath(n_heads=H)):
            with pytest.raises(UnsupportedError, match="needs hidden states"):
                encoding(ctx.q, ctx.k)


class TestGRAPE:
    """The paper's claim: RoPE, ALiBi and FoX are exact special cases of group actions."""

    def test_logits_are_powers_of_one_element_of_the_group(self):
        grape, ctx = built(GRAPE.Config(base=50.0)), context()
        logits, planes = grape.logits(ctx), grape.planes()
        for h in (0, 3):
            generator = torch.zeros(D, D).double()
            for m in range(D // 2):
                u, v = planes[h, :, 2 * m], planes[h, :, 2 * m + 1]
                generator += grape.logarithms[h, 0, m].exp() * (torch.outer(u, v) - torch.outer(v, u))
            assert_close(generator, -generator.T)
            for i, j in [(5, 2), (1, 7)]:
                power = torch.linalg.matrix_exp(-(i - j) * generator)
                assert_close(logits[0, h, i, j], (power @ ctx.q[0, h, i]) @ ctx.k[0, h, j] / math.sqrt(D))

    def test_rope_is_the_case_of_coordinate_planes(self):
        ctx = context()
        grape, rope = GRAPE.Config().fitted(**SIZES).build().double(), RoPE(head_dim=D)
        assert_close(grape.logits(ctx), rope.logits(ctx), atol=1e-6, rtol=1e-6)  # Logarithms are float32.
        generator = torch.zeros(D, D).double()
        for m, frequency in enumerate(10000.0 ** -(torch.arange(0, D, 2).double() / D)):
            generator[2 * m + 1, 2 * m], generator[2 * m, 2 * m + 1] = frequency, -frequency
        turned = torch.linalg.matrix_exp(3 * generator) @ ctx.q[0, 0, 0]
        assert_close(rope.rotate(ctx.q, torch.full((1, N), 3), "query")[0, 0, 0], turned)

    def test_alibi_is_a_unipotent_action_on_lifted_vectors(self):
        """G(n) = exp(nA), A of rank one with A^2 = 0, adds -m n to the product of q and k, both lifted."""
        ctx, slopes = context(), alibi_slopes(H)
        logits = ALiBi(n_heads=H).logits(ctx)
        for h, i, j in [(0, 6, 1), (3, 7, 7), (2, 5, 4)]:
            action = torch.zeros(D + 2, D + 2).double()
            action[D, D + 1] = -float(slopes[h]) * math.sqrt(D)
            assert float((action @ action).abs().max()) == 0
            q = torch.cat([ctx.q[0, h, i], torch.tensor([1.0, 0.0]).double()])
            k = torch.cat([ctx.k[0, h, j], torch.tensor([0.0, 1.0]).double()])
            power = torch.linalg.matrix_exp((i - j) * action)
            assert_close(q @ power @ k / math.sqrt(D), logits[0, h, i, j])

    def test_fox_is_a_product_of_unipotent_actions_along_the_way(self):
        fox, ctx = built(FoX.Config()), context()
        logits = fox.logits(ctx)
        gates = F.logsigmoid(ctx.x_k @ fox.gate.weight.T + fox.gate.bias)
        for b, h, i, j in [(0, 0, 6, 1), (1, 3, 7, 6), (1, 2, 4, 4)]:
            product = torch.eye(D + 2).double()
            for step in range(j + 1, i + 1):
                action = torch.zeros(D + 2, D + 2).double()
                action[D, D + 1] = gates[b, step, h] * math.sqrt(D)
                product = torch.linalg.matrix_exp(action) @ product
            q = torch.cat([ctx.q[b, h, i], torch.tensor([1.0, 0.0]).double()])
            k = torch.cat([ctx.k[b, h, j], torch.tensor([0.0, 1.0]).double()])
            assert_close(q @ product @ k / math.sqrt(D), logits[b, h, i, j])

    def test_the_path_integral_in_a_loop(self):
        encoding, ctx = built(GRAPEPath.Config(width=4)), context()
        bias, slopes = encoding.bias(ctx).detach(), alibi_slopes(H)
        p = (ctx.x_k @ encoding.projection.weight.T).detach().unflatten(-1, (H, 4))
        for b, h, i, j in [(0, 0, 6, 1), (1, 3, 7, 6), (1, 2, 4, 4)]:
            total = 0.0
            for step in range(j + 1, i + 1):
                unit = p[b, step, h] / p[b, step, h].square().mean().sqrt()
                first, second = torch.complex(*unit.chunk(2)) * torch.exp(torch.tensor(1j * step)), None
                turned, second = torch.cat([first.real, first.imag]), p[b, i, h]
                total += float(F.logsigmoid(second @ turned / 4)) * float(slopes[h])
            assert_close(float(bias[b, h, i, j]), total, atol=1e-6, rtol=1e-6)

    def test_a_gate_that_ignores_tokens_leaves_alibi_scaled_by_ln_2(self):
        encoding, ctx = built(GRAPEPath.Config()), context()
        with torch.no_grad():
            encoding.projection.weight.zero_()
        alibi = ALiBi(n_heads=H).bias(ctx).double()
        assert_close(encoding.bias(ctx).tril(), (math.log(2) * alibi).expand(B, H, N, N).tril())


class TestWavelet:
    def test_the_score_of_a_lag_by_hand(self):
        wavelet, ctx = Wavelet(head_dim=D, scales=2), context()
        logits = wavelet.logits(ctx)
        for b, h, i, j in [(0, 0, 6, 1), (1, 3, 2, 5)]:
            score = 0.0
            for c in range(D):
                scale = 2 ** (c % 2)
                u = (i - j - (c // 2) * scale) / scale
                score += float(ctx.q[b, h, i, c]) * (1 - u * u) * math.exp(-u * u / 2)
            expected = (float(ctx.q[b, h, i] @ ctx.k[b, h, j]) + score) / math.sqrt(D)
            assert_close(float(logits[b, h, i, j]), expected)

    def test_no_wavelet_has_a_mean(self):
        lags = torch.linspace(-200, 200, 40001, dtype=torch.float64)
        means = Wavelet(head_dim=D, scales=2).vectors(lags).sum(0) * 0.01
        assert_close(means, torch.zeros(D).double(), atol=1e-8, rtol=0)


class TestLinearAttention:
    def test_softmax_of_its_logits_is_linear_attention_as_a_recurrence(self):
        encoding, ctx, v = built(LinearAttention.Config()), context(), draw(B, H, N, 3, seed=5)
        out = attention(ctx, v, encoding, causal=True)
        q, k = 1 + F.elu(ctx.q), 1 + F.elu(ctx.k)
        decay = 1 - 2.0 ** -(5 + torch.arange(H).double())
        state, total = torch.zeros(B, H, D, 3).double(), torch.zeros(B, H, D).double()
        for t in range(N):
            state = decay[:, None, None] * state + k[:, :, t, :, None] * v[:, :, t, None]
            total = decay[:, None] * total + k[:, :, t]
            expected = torch.einsum("bhd,bhde->bhe", q[:, :, t], state)
            assert_close(out[:, :, t], expected / (q[:, :, t] * total).sum(-1, keepdim=True))

    def test_a_gated_decay_is_a_recurrence_with_a_gate_of_each_token(self):
        encoding = built(LinearAttention.Config(decay=FoX.Config()))
        ctx, v = context(), draw(B, H, N, 3, seed=5)
        out = attention(ctx, v, encoding, causal=True)
        gate = encoding.terms[0].gate
        decay = torch.sigmoid(ctx.x_k @ gate.weight.T + gate.bias)
        q, k = 1 + F.elu(ctx.q), 1 + F.elu(ctx.k)
        state, total = torch.zeros(B, H, D, 3).double(), torch.zeros(B, H, D).double()
        for t in range(N):
            state = decay[:, t, :, None, None] * state + k[:, :, t, :, None] * v[:, :, t, None]
            total = decay[:, t, :, None] * total + k[:, :, t]
        expected = torch.einsum("bhd,bhde->bhe", q[:, :, -1], state) / (q[:, :, -1] * total).sum(
            -1, keepdim=True
        )
        assert_close(out[:, :, -1], expected)

    def test_a_rotation_is_refused(self):
        with pytest.raises(
            ConfigError, match="decay must be an encoding that adds to logits and rotates nothing"
        ):
            LinearAttention.Config(decay=RoPE.Config()).build()

    def test_the_decays_of_retention(self):
        bias = RetNet(n_heads=3).lag_bias(torch.tensor([1, 2]))
        assert_close(bias.exp()[0], torch.tensor([31 / 32, 63 / 64, 127 / 128]))
        assert_close(bias[1], 2 * bias[0])


class TestDifferential:
    def test_pairs_of_heads_in_a_loop(self):
        encoding = built(Differential.Config(inner=RoPE.Config(), share=0.3))
        ctx, v = context(), draw(B, H, N, 3, seed=5)
        out = attention(ctx, v, encoding, causal=True)
        (q1, q2), (k1, k2) = encoding.vectors.detach()
        share = math.exp(q1 @ k1) - math.exp(q2 @ k2) + 0.3
        rope = RoPE(head_dim=D)
        mask = torch.full((N, N), -math.inf).triu(1)
        patterns = (rope.logits(ctx) + mask).softmax(-1)
        for g in range(H // 2):
            pattern = patterns[:, 2 * g] - share * patterns[:, 2 * g + 1]
            read = pattern @ torch.cat([v[:, 2 * g], v[:, 2 * g + 1]], -1)
            read = read / (read.square().mean(-1, keepdim=True) + 1e-5).sqrt() * 0.7
            assert_close(out[:, 2 * g], read[..., :3])
            assert_close(out[:, 2 * g + 1], read[..., 3:])

    def test_a_layer_is_that_of_diffllama(self):
        """Head g of the first half is paired with head g of the second there, neighbours here."""
        sizes = {"hidden_size": H * D, "num_attention_heads": H, "num_hidden_layers": 4}
        config = DiffLlamaConfig(**sizes, rms_norm_eps=1e-5, attn_implementation="eager")
        torch.manual_seed(0)
        theirs = modeling_diffllama.DiffLlamaAttention(config, layer_idx=3).eval().double()
        theirs.o_proj.weight.data.copy_(torch.eye(H * D))
        x, pos = draw(1, N, H * D), torch.arange(N)[None]
        waves = modeling_diffllama.DiffLlamaRotaryEmbedding(config)(x, pos)
        expected, _ = theirs(x, waves, torch.full((1, 1, N, N), -math.inf).triu(1))
        rope = RoPE.Config(head_dim=D, pairs="halves")
        ours = Differential(n_heads=H, head_dim=D, share=theirs.lambda_init, inner=rope).double()
        first, second = (theirs.lambda_q1, theirs.lambda_k1), (theirs.lambda_q2, theirs.lambda_k2)
        with torch.no_grad():
            ours.vectors.copy_(torch.stack([torch.stack(pair) for pair in zip(first, second, strict=True)]))
        q, k, v = (
            project(x).unflatten(-1, (2, H // 2, D)).transpose(2, 3).flatten(2, 3).transpose(1, 2)
            for project in (theirs.q_proj, theirs.k_proj, theirs.v_proj)
        )
        out = attention(Context(q, k, pos, pos), v, ours, causal=True)
        assert_close(out.transpose(1, 2).flatten(2), expected, atol=1e-6, rtol=1e-5)

    def test_layers_have_shares_of_their_own_and_share_what_the_inner_one_shares(self):
        first, second = Differential.Config(n_heads=H, head_dim=D).build_layers(2)
        assert first.terms[0] is second.terms[0]
        assert not torch.equal(first.vectors, second.vectors)

    def test_what_cannot_be_paired_is_refused(self):
        with pytest.raises(ConfigError, match="n_heads must be even"):
            Differential.Config(n_heads=5)
        with pytest.raises(ConfigError, match="inner must be an encoding that leaves values alone"):
            Differential.Config(inner=Shaw.Config()).build()


class TestComplexFormer:
    def test_angles_of_content_and_position_are_scaled_per_head(self):
        encoding, ctx = built(ComplexFormer.Config()), context()
        logits, q, k = encoding.logits(ctx), pairs(ctx.q), pairs(ctx.k)
        frequencies = 10000.0 ** -(torch.arange(0, D, 2).double() / D)
        for h, i, j in [(0, 5, 2), (3, 1, 7)]:
            a, s = encoding.content[h, 0, 0], encoding.position[h, 0, 0]
            between = q[0, h, i].angle() - k[0, h, j].angle()
            angle = a * between + s * (i - j) * frequencies
            expected = (q[0, h, i].abs() * k[0, h, j].abs() * angle.cos()).sum() / math.sqrt(D)
            assert_close(logits[0, h, i, j], expected)

    def test_it_starts_as_rope(self):
        for layout in ("adjacent", "halves"):
            encoding = ComplexFormer(n_heads=H, head_dim=D, pairs=layout).double()
            assert_close(encoding.logits(context()), RoPE(head_dim=D, pairs=layout).logits(context()))


class TestWeierstrass:
    Z = torch.complex(
        torch.tensor([0.1, 0.3, 0.45, 0.2]).double(), torch.tensor([0.2, 0.05, 0.4, 0.49]).double()
    )

    def test_the_function_solves_its_differential_equation(self):
        value, slope = weierstrass(self.Z)
        g2 = math.gamma(0.25) ** 8 / (16 * math.pi**2)
        assert_close(slope**2, 4 * value**3 - g2 * value)

    def test_the_function_is_the_sum_over_its_lattice(self):
        value, slope = weierstrass(self.Z)
        side = torch.arange(-200, 201).double()
        lattice = torch.complex(*torch.meshgrid(side, side, indexing="ij")).flatten()
        away = lattice[lattice != 0]
        total = 1 / self.Z**2 + (1 / (self.Z[:, None] - away) ** 2 - 1 / away**2).sum(-1)
        assert_close(value, total, atol=2e-3, rtol=1e-4)
        assert_close(slope, -2 * (1 / (self.Z[:, None] - lattice) ** 3).sum(-1), atol=2e-3, rtol=1e-4)

    def test_the_function_is_doubly_periodic_and_even(self):
        value, slope = weierstrass(self.Z)
        for period in (1, 1j, 3 - 2j):
            assert_close(weierstrass(self.Z + period), (value, slope))
        assert_close(weierstrass(-self.Z), (value, -slope))

    def test_features_differ_all_over_the_plane(self):
        encoding = Weierstrass(d_model=C, side=12)
        rows, columns = torch.meshgrid(torch.arange(12), torch.arange(12), indexing="ij")
        pos = torch.stack([rows.flatten() * 12 + columns.flatten(), rows.flatten(), columns.flatten()], -1)[
            None
        ]
        features = encoding.features(pos)[0]
        distances = torch.cdist(features, features) + torch.eye(144).double()
        assert float(distances.min()) > 0.01
        x = draw(1, 144, C)
        assert_close(encoding.embed(x, pos), x + features @ encoding.map.double())


@pytest.mark.parametrize(
    "name", ["pope", "carope", "selective_rope", "linear_attention", "differential", "grape_ap"]
)
def test_gradients_are_those_of_finite_differences(name):
    encoding = built(ENCODINGS.config(name)())
    q, k, x = draw(1, H, 4, D), draw(1, H, 4, D, seed=1), draw(1, 4, C, seed=2)
    pos = torch.arange(4)[None]

    def output(q, k, x):
        ctx = Context(q, k, pos, pos, x, x)
        return attention(ctx, k, encoding, causal=True)

    inputs = [value.requires_grad_() for value in (q, k, x)]
    assert torch.autograd.gradcheck(output, inputs, fast_mode=True)


def test_without_a_decay_weights_depend_on_content_alone():
    encoding, ctx = built(LinearAttention.Config(decay=NoPE.Config())), context()
    product = torch.einsum("bhid,bhjd->bhij", 1 + F.elu(ctx.q), 1 + F.elu(ctx.k))
    assert_close(encoding.logits(ctx).exp(), product)


class TestTemperature:
    def test_steps_are_those_of_ministral_3(self):
        config = Temperature.Config(strength=0.3, window=4, offset=0)
        q, pos = draw(1, H, 20, D), torch.arange(20)[None]
        expected = q * modeling_ministral3.get_llama_4_attn_scale(pos.double(), 0.3, 4)
        assert_close(config.build().rotate(q, pos, "query"), expected)
        assert config.build().rotate(q, pos, "key") is q

    def test_differences_of_logits_grow_as_in_llama_4(self):
        """Of two keys, in a layer that does not rotate, with its temperature and without."""
        sizes = {"hidden_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
        sizes |= {"floor_scale": 3, "attn_scale": 0.4, "no_rope_layers": [0], "num_hidden_layers": 1}
        x, differences = draw(1, 12, 8).float(), []
        for tuned in (True, False):
            torch.manual_seed(0)
            config = Llama4TextConfig(**sizes, attn_temperature_tuning=tuned, attn_implementation="eager")
            _, pattern = modeling_llama4.Llama4TextAttention(config, 0).eval()(x, None, None)
            differences.append(pattern[0, 0, :, 1].log() - pattern[0, 0, :, 0].log())
        ours = Temperature(strength=0.4, window=3).rotate(
            draw(1, 1, 12, 1) * 0 + 1, torch.arange(12), "query"
        )
        assert_close(differences[0] / differences[1], ours.flatten().float(), atol=1e-3, rtol=1e-3)

    def test_smooth_growth_by_hand(self):
        ones, pos = torch.ones(1, 1, 3, 1), torch.tensor([0, 7, 63])
        factors = Temperature(strength=0.5, window=8, growth="smooth").rotate(ones, pos, "query").flatten()
        assert factors.tolist() == pytest.approx([1, 1, 1 + 0.5 * math.log(8)])

    def test_what_breaks_a_rule_is_refused(self):
        with pytest.raises(ConfigError, match="window must be at least 1; got 0"):
            Temperature.Config(window=0)
