"""Two runtimes compared, and the cause of a difference."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.checkpoints.parity.few import few_families
from tests.checkpoints.parity.induction import FOLDER, sequences
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from spectrope.checkpoints import open_model
from spectrope.checkpoints.commands.parity import EXIT_CODES
from spectrope.checkpoints.parity import ModelRuntime, Parity, Runtime, cause, parity, prompts_of
from spectrope.checkpoints.parity.faults import Simulation
from spectrope.checkpoints.parity.observed import Observed
from spectrope.checkpoints.parity.places import places_of
from spectrope.checkpoints.parity.run import ParityAnswer
from spectrope.core import ConfigError, UnsupportedError

LENGTH, N = 64, 6
FAMILIES = ("base", "window of", "no rotation")


@pytest.fixture(scope="module")
def local() -> Any:
    return open_model(FOLDER, dtype="float32")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch):
    few_families(monkeypatch, FAMILIES)


@dataclass(frozen=True, eq=False)
class Replay(Runtime):
    """Predictions that were made before."""

    seen: Observed

    @property
    def name(self) -> str:
        return "replay"

    def predict(self, prompts: Tensor, places: Tensor) -> Observed:
        return self.seen


def rebased(base: float) -> Any:
    model: Any = open_model(FOLDER, dtype="float32")
    parameters = {"rope_type": "default", "rope_theta": base}
    config = type(model.config)(**(model.config.to_dict() | {"rope_parameters": parameters}))
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model


def compared(local: Any, other: Runtime) -> Parity:
    return parity(ModelRuntime(local), other, sequences(N, LENGTH, seed=3)[0], local, places=24)


def test_a_wrong_base_is_named_with_its_value_and_its_next_best_explanation(local: Any):
    found = compared(local, ModelRuntime(rebased(23456.0)))
    named = found.causes.cause
    assert found.answer == "differs"
    assert named is not None
    assert (named.codes, named.layers, named.onset) == (("SPE101",), (), 0)
    assert named.value == pytest.approx(23456, rel=0.01)
    assert found.causes.next_best is not None
    assert found.causes.next_best[1] > 1000
    assert "times less likely" in found.verdict
    assert bool((found.by_position["divergence_low"] < found.by_position["divergence_high"]).all())
    assert found.to_dict()["cause"]["codes"] == ("SPE101",)
    assert "SPE101" in repr(found)


def test_what_cannot_complete_texts_is_refused(tmp_path: Any):
    ids = sequences(N, LENGTH, seed=3)[0]
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    masked = BertForMaskedLM(BertConfig(**sizes, num_attention_heads=2)).eval()
    with pytest.raises(UnsupportedError, match="reads tokens after the one that it predicts from"):
        parity(ModelRuntime(masked), ModelRuntime(masked), ids, masked)
    t5 = T5ForConditionalGeneration(T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1))
    with pytest.raises(UnsupportedError, match="has an encoder"):
        ModelRuntime(t5).predict(ids, torch.arange(4))
    few = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=1, n_positions=32)).eval()
    with pytest.raises(UnsupportedError, match=r"does not run at length 64; .* gives it 32 positions"):
        ModelRuntime(few).predict(ids, torch.arange(4))
    untied = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, tie_word_embeddings=False))
    untied.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("lm_head.weight")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        UnsupportedError, match=r"lacks lm_head\.weight, so that it would predict by a random"
    ):
        ModelRuntime(open_model(str(tmp_path))).predict(ids, torch.arange(4))


def test_a_fault_that_cannot_be_simulated_leaves_the_others(local: Any, monkeypatch: pytest.MonkeyPatch):
    sound = Simulation.put_into

    def refuse(*given: Any) -> None:
        raise RuntimeError("no kernel takes this")

    @contextlib.contextmanager
    def put_into(self: Simulation, copy: Any, value: float, layers: Any) -> Iterator[None]:
        with sound(self, copy, value, layers), contextlib.ExitStack() as stack:
            if not self.name.startswith("base"):
                stack.callback(copy.model.register_forward_pre_hook(refuse).remove)
            yield

    monkeypatch.setattr(Simulation, "put_into", put_into)
    causes = compared(local, ModelRuntime(rebased(23456.0))).causes
    assert causes.cause is not None
    assert {one.codes for one in causes.ranked} == {("SPE101",)}


def test_a_fault_that_changes_nothing_explains_nothing(local: Any, monkeypatch: pytest.MonkeyPatch):
    few_families(monkeypatch, ("window of",))
    found = compared(local, ModelRuntime(open_model(FOLDER, dtype="bfloat16")))
    wide = [one for one in found.causes.ranked if one.value is not None and one.value >= LENGTH]
    assert [one.explained for one in wide] == pytest.approx([0.0] * len(wide), abs=0.02)
    assert found.to_frame()["explained"].max() < 0.5


def test_a_fault_that_begins_at_a_position_is_named_with_it(local: Any):
    prompts, places = sequences(N, LENGTH, seed=3)[0], places_of(LENGTH, 24)
    sound, wrong = (ModelRuntime(m).predict(prompts, places) for m in (local, rebased(200.0)))
    late = (places >= 32)[None, :, None]
    found = compared(local, Replay(Observed(torch.where(late, wrong.logs, sound.logs))))
    named = found.causes.cause
    assert named is not None
    assert named.codes == ("SPE101",)
    assert 24 <= named.onset <= 36
    assert f"from position {named.onset}" in found.verdict


def test_the_same_model_is_the_same_and_looks_for_nothing(local: Any):
    found = compared(local, ModelRuntime(open_model(FOLDER, dtype="float32"), cached=True))
    assert found.answer == "same"
    assert found.causes.ranked == ()
    assert found.causes.cause is None
    assert found.verdict.startswith("The predictions are the same up to rounding on these prompts")


def listed(probabilities: dict[int, float], places: int = 24) -> Replay:
    """A server that reports the same tokens everywhere."""
    logs = torch.tensor(list(probabilities.values()), dtype=torch.float64).log()
    ids = torch.tensor(list(probabilities)).expand(N, places, -1)
    return Replay(Observed(logs.expand(N, places, -1).clone(), ids.clone()))


def test_servers_that_report_other_tokens_are_not_the_same(local: Any):
    prompts, places = sequences(N, LENGTH, seed=3)[0], len(places_of(LENGTH, 24))
    pair = [listed({a: 0.98, a + 1: 0.01}, places) for a in (5, 7)]
    found = parity(*pair, prompts, local, places=24)
    assert found.answer == "differs"
    assert found.divergence > 4
    flat = [listed({a: 0.01, a + 1: 0.01}, places) for a in (5, 7)]
    unknown = parity(*flat, prompts, local, places=24)
    assert (unknown.answer, unknown.shared, unknown.causes.ranked) == ("cannot tell", 0.0, ())
    assert "both runtimes report have a probability of 0.0%" in unknown.verdict
    both = parity(
        listed({5: 0.3, 6: 0.2}, places), listed({6: 0.2, 5: 0.3}, places), prompts, local, places=24
    )
    assert both.answer == "same"
    assert "of the tokens that both report (50.0% of the probability), are the same" in both.verdict
    assert EXIT_CODES.keys() == set(get_args(ParityAnswer))
    assert EXIT_CODES["cannot tell"] == 3


@pytest.mark.parametrize("server_first", [True, False])
def test_the_cause_is_that_of_the_runtime_which_is_not_the_local_copy(local: Any, server_first: bool):
    pair = [ModelRuntime(rebased(23456.0), "wrong"), ModelRuntime(local, "right")]
    first, second = pair if server_first else pair[::-1]
    found = parity(first, second, sequences(N, LENGTH, seed=3)[0], local, places=24)
    assert found.answer == "differs"
    assert found.names[found.suspect] == "wrong"
    assert found.causes.cause is not None
    assert found.causes.cause.codes == ("SPE101",)
    assert "cts like base" in found.verdict
    assert ("wrong acts like" in found.verdict) == server_first


def test_two_runtimes_that_share_a_fault_are_the_same_and_not_the_local_copy(local: Any):
    wrong = ModelRuntime(rebased(23456.0), "wrong")
    found = parity(wrong, wrong, sequences(N, LENGTH, seed=3)[0], local, places=24)
    assert (found.answer, found.causes.ranked) == ("same", ())
    assert "Neither predicts what the local copy does: the nearer one, wrong, is" in found.verdict


def test_another_model_is_refused(local: Any):
    config = type(local.config)(**(local.config.to_dict() | {"vocab_size": 40}))
    smaller = ModelRuntime(type(local)(config).eval(), "smaller")
    prompts = sequences(N, LENGTH, seed=3)[0]
    with pytest.raises(UnsupportedError, match="smaller has 40 tokens, and a prompt holds token 4"):
        parity(ModelRuntime(local), smaller, prompts, local)
    with pytest.raises(ConfigError, match="smaller predicts 40 tokens, and the local copy has 48; is it the"):
        parity(ModelRuntime(local), smaller, prompts % 40, local)
    ids = torch.full((N, LENGTH, 2), 99)
    strange = Replay(Observed(torch.full(ids.shape, -1.0, dtype=torch.float64), ids))
    with pytest.raises(ConfigError, match="replay predicts token 99, and the local copy has 48 tokens"):
        parity(ModelRuntime(local), strange, prompts, local)


def test_lower_precision_gives_no_cause(local: Any):
    found = compared(local, ModelRuntime(open_model(FOLDER, dtype="bfloat16")))
    assert found.answer == "precision"
    assert found.causes.cause is None
    assert found.verdict.startswith("No cause")


def test_what_no_fault_explains_is_said_to_be_so(local: Any):
    other: Any = open_model(FOLDER, dtype="float32")
    for layer in other.model.layers:
        layer.mlp.down_proj.weight.data *= 0.5
    found = compared(local, ModelRuntime(other))
    assert (found.answer, found.causes.cause) == ("differs", None)
    assert "no simulated fault explains it" in found.verdict


def test_equal_explanations_are_listed_as_rivals(local: Any):
    one = cause.Explanation(("SPE101",), "base 5", 0.1, 10.0)
    causes = cause.Causes((one, cause.Explanation(("SPE102",), "other", 0.1, 9.0)), none(), ())
    assert [str(rival) for rival in causes.rivals] == ["other (SPE102)"]
    assert causes.next_best is not None
    assert causes.next_best[1] == pytest.approx(2.718281828)


def test_no_cause_is_named_where_another_fault_explains_it_as_well():
    one, same, other = (
        cause.Explanation(codes, words, 0.01, 30.0 - i)
        for i, (codes, words) in enumerate([(("SPE101",), "a"), (("SPE101",), "b"), (("SPE405",), "c")])
    )
    assert cause.Causes((one, same), none(), ()).cause is one
    assert cause.Causes((one, same, other), none(), ()).cause is None
    frame = pl.DataFrame({"divergence": [1.0], "places": [3]})
    found = Parity(("a", "b"), frame, 1, cause.Causes((one, other), none(), ()), 0.0, 8, 64)
    assert found.answer == "differs"
    assert "Several faults explain it equally well, so none is named: a (SPE101); c (SPE405)" in found.verdict


def none() -> cause.Explanation:
    return cause.Explanation((), "no fault", 1.0, -20.0)


def test_the_likelihood_counts_prompts_and_parameters():
    left = torch.full((4, 3), 0.01, dtype=torch.float64)
    plain, costly = cause.log_likelihood(left, 0), cause.log_likelihood(left, 2)
    assert plain == pytest.approx(-2 * torch.tensor(0.01).log().item(), rel=1e-6)
    assert plain - costly == pytest.approx(torch.tensor(4.0).log().item())
    better = cause.log_likelihood(left / 10, 0)
    assert better - plain == pytest.approx(2 * torch.tensor(10.0).log().item(), rel=1e-6)


def test_prompts_must_suffice(local: Any):
    with pytest.raises(ConfigError, match=r"at least 2 prompts of at least 16 tokens; got 1 of 64"):
        parity(ModelRuntime(local), ModelRuntime(local), torch.zeros(1, 64, dtype=torch.int64), local)


def test_a_model_without_a_head_is_refused(local: Any):
    with pytest.raises(UnsupportedError, match="no head that predicts tokens"):
        ModelRuntime(local.model, "body").predict(torch.zeros(2, 16, dtype=torch.int64), torch.arange(4))


def test_prompts_repeat_and_places_reach_the_end(local: Any):
    prompts = prompts_of(local, 3, 40)
    assert prompts.shape == (3, 40)
    assert places_of(1000)[-1] == 999
    assert len(places_of(1000)) <= 48
