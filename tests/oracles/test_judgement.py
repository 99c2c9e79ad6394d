"""oracles.judgement: bits, and the checksum of a reference."""

# ruff: noqa: SIM300 - the expected value stands first

import pytest
import torch

from oracles import judgement
from oracles.judgement import Reference, bits


def reference(**changes):
    parts = {
        "want": {"out": torch.arange(6.0, dtype=torch.float64).view(2, 3)},
        "bound": {"out": torch.zeros(2, 3, dtype=torch.float64)},
        "dtype": {"out": torch.float32},
        "extra": {"allowed": torch.ones(2, 3, dtype=torch.bool), "quota": torch.full((2,), -1)},
    }
    return Reference(**(parts | changes))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_bits_tell_zeros_and_payloads_apart(dtype):
    """Equal values with other bits differ, NaN equals itself."""
    x = torch.tensor([0.0, torch.nan], dtype=dtype)
    assert not torch.equal(bits(x), bits(torch.tensor([-0.0, torch.nan], dtype=dtype)))
    assert torch.equal(bits(x), bits(x.clone()))
    payload = bits(x).clone()
    payload[1] += 1
    assert not torch.equal(bits(x), payload)
    assert bool(payload.view(dtype)[1].isnan())


def test_equal_references_have_equal_checksums():
    """Whatever the memory layout of their tensors."""
    plain = reference()
    turned = reference(want={"out": plain.want["out"].t().contiguous().t()})
    assert plain.checksum() == turned.checksum()


@pytest.mark.parametrize("group", ["want", "bound", "extra"])
def test_any_changed_element_changes_the_checksum(group):
    """At every place of every tensor, by the lowest and by the topmost bit."""
    missed = []
    made = reference()
    before = made.checksum()
    for name, tensor in getattr(made, group).items():
        raw = tensor.view(-1).view(torch.uint8)
        for byte in range(len(raw)):
            for bit in (1, 2, 64, 128) if tensor.dtype != torch.bool else (1,):
                raw[byte] ^= bit
                if made.checksum() == before:
                    missed.append((name, byte, bit))
                raw[byte] ^= bit
    assert [] == missed


def test_swapped_elements_change_the_checksum():
    """The place counts."""
    made = reference()
    before = made.checksum()
    made.want["out"].copy_(made.want["out"].flip(1))
    assert before != made.checksum()


@pytest.mark.parametrize("places", [(0, 1), (1, 2), (2, 5), (1, 2, 3, 4), range(6), (3,)])
@pytest.mark.parametrize("values", [[1.0] * 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.0] * 6, [-torch.inf, 1.0] * 3])
def test_changed_signs_change_the_checksum(places, values):
    """However many: the topmost bits of several words do not cancel."""
    made = reference(want={"out": torch.tensor(values, dtype=torch.float64)})
    before = made.checksum()
    made.want["out"][list(places)] *= -1
    assert before != made.checksum()


def test_a_poisoned_reference_changes_the_checksum():
    """What a wild memset leaves."""
    for byte in (0x00, 0x7B, 0xFB, 0xFF):
        made = reference()
        before = made.checksum()
        made.want["out"].view(torch.uint8).fill_(byte)
        assert before != made.checksum()


def test_an_empty_reference_has_a_checksum():
    """No elements, no error."""
    empty = torch.zeros(0, 3, dtype=torch.float64)
    assert 0 == reference(want={"out": empty}, bound={"out": empty}, extra={}).checksum()


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_the_size_of_a_chunk_does_not_matter(monkeypatch, chunk):
    """A large reference is summed in parts."""
    whole = reference().checksum()
    monkeypatch.setattr(judgement, "CHUNK", chunk)
    assert whole == reference().checksum()
