"""Gray codes, against codes written out."""

import torch
from tests.encodings.sampled import context

from spectrope.encodings.gray import GrayCode, gray_code


def test_neighbours_differ_in_one_bit_and_powers_of_two_in_two():
    position = torch.arange(200)
    for power in range(7):
        apart = gray_code(position, 12) != gray_code(position + 2**power, 12)
        assert (apart.sum(-1) == (1 if power == 0 else 2)).all()
    assert gray_code(torch.tensor([5]), 4).tolist() == [[1, 1, 1, 0]]


def test_the_bias_counts_equal_bits():
    bias = GrayCode(bits=4, amplitude=0.5).bias(context())
    codes = ["0000", "0001", "0011", "0010", "0110", "0111", "0101", "0100"]
    for i, j in [(0, 0), (7, 2), (5, 4), (1, 6)]:
        equal = sum(a == b for a, b in zip(codes[i], codes[j], strict=True))
        assert float(bias[0, 0, i, j]) == 0.5 * equal


def test_codes_repeat_after_twice_as_many_positions_as_the_bits_number():
    position = torch.arange(64)
    assert torch.equal(gray_code(position, 3), gray_code(position + 2**4, 3))
    assert not torch.equal(gray_code(position, 3), gray_code(position + 2**3, 3))
