"""Engines that compute elsewhere: finished run folders are brought home, and tables of an ablation too."""

from functools import partial

import pytest
import torch
from tests.lab.engines.test_local import tiny

from spectrope.core.progress import Progress
from spectrope.front.ablate import ablate
from spectrope.front.compare import compare
from spectrope.lab.ablation.methods import ablate_apart
from spectrope.lab.engines.base import Engine
from spectrope.lab.engines.local import Local, execute
from spectrope.lab.engines.ray import Ray
from spectrope.store import find_runs, packed


class Elsewhere(Engine):
    """A machine that does not share the caller's disk."""

    def __init__(self, root):
        self.root = root

    def __call__(self, jobs, root, watch, harvest, keep):
        Local("cpu")(jobs, self.root, watch, harvest, keep)


def test_run_folders_are_brought_home(tmp_path):
    plan = [tiny("rope"), tiny("nope")]
    runs = execute(plan, tmp_path / "here", engine=Elsewhere(tmp_path / "there"))
    assert [run.config["encoding_name"] for run in runs] == ["rope", "nope"]
    assert [run.id for run in find_runs(tmp_path / "here")] == sorted(run.id for run in runs)
    assert all(run.finished and run.has_frame("ablation") for run in runs)


def test_a_comparison_is_carried_out_elsewhere(tmp_path):
    watched: list[Progress] = []
    compared = compare(
        ["rope"],
        "distance",
        epochs=1,
        n_examples=60,
        rates=(1.0,),
        root=tmp_path / "here",
        engine=Elsewhere(tmp_path / "there"),
        watch=watched.append,
    )
    assert all(run.path.parent == tmp_path / "here" for run in (*compared.runs, *compared.tuned))
    assert watched


def test_an_ablation_apart_equals_one_at_home(tmp_path, monkeypatch):
    (run,) = execute([tiny("rope")], tmp_path)
    at_home = run.frame("ablation")

    def compute(self, function, watch):
        return function(torch.device("cpu"), watch)

    monkeypatch.setattr(Ray, "compute", compute)
    run.remove("ablation")
    costs = ablate(run, engine=Ray(), watch=lambda progress: None)
    assert costs.to_frame().equals(at_home)
    assert run.frame("ablation").equals(at_home)
    apart = partial(ablate_apart, packed(run), None)(torch.device("cpu"))
    assert apart["ablation"].equals(at_home)


def test_a_checkpoint_is_not_sent(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    from spectrope.core.errors import ConfigError

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=2, **sizes))
    with pytest.raises(ConfigError, match="engine is for runs; a model's heads are measured on this machine"):
        ablate(model, engine=Ray())
