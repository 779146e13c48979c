"""The same input into layers of the same number, whatever their modules are called."""

import torch
from tests.checkpoints.audit.families import llama
from torch import nn

from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.checkpoints.probes.shared_content import shared_content


def test_layers_get_the_same_input_under_other_names():
    model = llama().model
    first = shared_content(model, attention_modules(model), length=8, contents=3)
    renamed = llama().model
    renamed.layers = nn.ModuleList(renamed.layers)
    wrapped = nn.Module()
    wrapped.body = renamed
    wrapped.config, wrapped.forward = renamed.config, renamed.forward
    second = shared_content(wrapped, attention_modules(wrapped), length=8, contents=3)
    assert first.keys() == second.keys() == {("", 0), ("", 1)}
    for place, call in first.items():
        assert call.module != second[place].module
        torch.testing.assert_close(call.q, second[place].q)
    assert not torch.allclose(first["", 0].q, first["", 1].q)
