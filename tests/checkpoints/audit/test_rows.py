"""Biases that differ between the rows of a batch."""

import sys

import pytest
from tests.checkpoints.audit.museum import LENGTH, Exhibit

from spectrope.checkpoints.audit import audit


def rows_and_heads_exchanged(model, patch):
    """Slopes by (row, head) are read as slopes by (head, row)."""
    code, config = sys.modules[type(model).__module__], model.config
    heads, own = config.num_attention_heads, code.build_alibi_tensor

    def exchanged(mask, n_heads, dtype):
        alibi = own(mask, n_heads, dtype)
        return alibi.view(-1, heads, *alibi.shape[1:]).transpose(0, 1).reshape(alibi.shape)

    patch.setattr(code, "build_alibi_tensor", exchanged)


def exchanged_in_attention(model, patch):
    """The same where one vector of slopes is repeated for all rows."""
    heads = model.config.num_attention_heads

    def exchanged(_, args, given):
        alibi = given["alibi"]
        alibi = alibi.view(-1, heads, *alibi.shape[1:]).transpose(0, 1).reshape(alibi.shape)
        return args, given | {"alibi": alibi}

    for block in model.transformer.h if hasattr(model, "transformer") else model.h:
        block.self_attention.register_forward_pre_hook(exchanged, with_kwargs=True)


@pytest.mark.parametrize(
    ("family", "inject", "declared"),
    [("falcon", rows_and_heads_exchanged, {"alibi": True}), ("bloom", exchanged_in_attention, {})],
)
def test_rows_of_a_batch_with_other_slopes_are_one_finding_of_a_layer(family, inject, declared, monkeypatch):
    case = Exhibit(
        "rows and heads exchanged", "", family, inject=inject, declared=declared, codes=frozenset()
    )
    assert audit(case.sound(), length=LENGTH).ok
    records = audit(case.model(monkeypatch), length=LENGTH).records
    assert [(one.code, one.layer, one.head) for one in records] == [("SPE301", 0, None), ("SPE301", 1, None)]
    assert all("of rows 0 and 1" in one.effective for one in records)
