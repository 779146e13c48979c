"""A function runs once for arguments that are equal to those of its last call."""

import torch

from spectrope.checkpoints.audit.known import Known


def test_a_function_runs_again_only_for_other_arguments():
    runs = []

    def doubled(x, by):
        runs.append(by)
        return by * x

    known, x = Known(), torch.arange(4.0)
    first = known.of(doubled, x, 2)
    assert known.of(doubled, x.clone(), 2) is first
    assert runs == [2]
    assert torch.equal(known.of(doubled, x, 3), 3 * x)
    assert torch.equal(known.of(doubled, x.double(), 3), 3 * x.double())
    x[0] = 7
    assert known.of(doubled, x + 1, 3)[0] == 24
    assert runs == [2, 3, 3, 3]


def test_functions_are_kept_apart():
    known, x = Known(), torch.arange(4.0)
    assert known.of(torch.sum, x) == 6
    assert known.of(torch.mean, x) == 1.5
