"""Facts about top_k_mask_logits that hold on every backend and device. Each takes (backend, device) and asserts.

test_backends.py runs them in its own process, on a GPU, and in a process where Triton interprets:
`TRITON_INTERPRET=1 python -m tests.impls.top_k_mask_logits.facts triton cpu` prints a report as JSON.
"""

import sys

import torch

from impls.top_k_mask_logits import top_k_mask_logits, top_k_mask_logits_
from tests.impls.running import facts_of, print_report
from tests.impls.top_k_mask_logits.brute_force import DTYPES, bits, expected, nasty_rows


def _same(expected_bits, actual):
    return torch.equal(expected_bits, bits(actual).cpu())


def _random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def kept_elements_keep_their_bits_whatever_they_are(backend, device):
    """NaN payloads, signed zeros, infinities, subnormals and ties come out right for small, middling and excessive k."""
    for dtype in DTYPES:
        logits = nasty_rows(dtype, 3, 50)
        for k in (0, 1, 13, 25, 49, 50, 1 << 30, 1 << 70):
            actual = top_k_mask_logits(logits.to(device), k, backend=backend)
            assert _same(expected(logits, k), actual), (dtype, k)


def each_row_has_its_own_k(backend, device):
    """A k tensor of either dtype and any stride is read row by row, and clipped to [0, vocab] without wrapping around."""
    logits = _random(8, 40)
    for dtype, huge in ((torch.int32, (1 << 31) - 1), (torch.int64, (1 << 32) + 1)):
        ks = torch.tensor([3, 40, 1, 0, huge, -huge, 39, 41], dtype=dtype)
        backwards = torch.stack([ks, ks * 0 + 7], 1).to(device)
        for k, plain in ((ks.to(device), ks), (backwards[:, 0], ks), (backwards[:1, 1].expand(8), ks * 0 + 7)):
            actual = top_k_mask_logits(logits.to(device), k, backend=backend)
            assert _same(expected(logits, plain), actual), (dtype, k.stride())


def any_row_length_works(backend, device):
    """Lengths on both sides of 16 bytes, of a warp, of a block and of several blocks."""
    lengths = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 255, 256, 257, 1023, 1025, 4097)
    for i, vocab in enumerate(lengths):
        dtype = DTYPES[i % 3]
        logits = _random(1, vocab, dtype=dtype, seed=i)
        k = (vocab + 1) // 2
        assert _same(expected(logits, k), top_k_mask_logits(logits.to(device), k, backend=backend)), (dtype, vocab)


def all_ties_of_the_kth_stay(backend, device):
    """Constant rows are kept whole for every k > 0, and rows of two values are cut between the values."""
    logits = torch.tensor([[1.0] * 9, [-torch.inf] * 9, [2.0] * 4 + [1.0] * 5, [torch.nan] * 9, [-0.0, 0.0, 1.0] * 3])
    for dtype in DTYPES:
        for k in (1, 4, 5):
            actual = top_k_mask_logits(logits.to(dtype).to(device), k, backend=backend)
            assert _same(expected(logits.to(dtype), k), actual), (dtype, k)


def an_outlier_or_a_tiny_spread_changes_nothing(backend, device):
    """Rows on which a search over values gives up early: one huge element, and neighbours one bit apart."""
    close = (torch.arange(64, dtype=torch.int32).flip(0) + 0x3F800000).view(torch.float32)[None]
    outlier = _random(1, 64)
    outlier[0, 17] = 3e38
    for logits in (close, outlier, -close):
        for k in (1, 2, 63):
            assert _same(expected(logits, k), top_k_mask_logits(logits.to(device), k, backend=backend)), k


def in_place_equals_out_of_place(backend, device):
    """The in-place forms return the very tensor they were given, and a same view by another name counts as in place."""
    for dtype in DTYPES:
        want = expected(nasty_rows(dtype, 2, 37), 5)
        x, y, z = (nasty_rows(dtype, 2, 37).to(device) for _ in range(3))
        assert top_k_mask_logits_(x, 5, backend=backend) is x
        assert top_k_mask_logits(y, 5, out=y, backend=backend) is y
        other = z.view(2, 37)
        assert top_k_mask_logits(z, 5, out=other, backend=backend) is other
        assert _same(want, x), dtype
        assert _same(want, y), dtype
        assert _same(want, z), dtype


def any_alignment_and_row_stride_works(backend, device):
    """Input and output may start at any element, at different ones, with padded rows; nothing around them changes."""
    rows, vocab = 2, 37
    for step, dtype in enumerate(DTYPES):
        logits = nasty_rows(dtype, rows, vocab, seed=step)
        for source, target in ((0, 0), (1, 1), (0, 1), (3, 7)):
            memory = torch.full((2, 200), 7.0, dtype=dtype, device=device)
            x = memory[0].as_strided((rows, vocab), (53, 1), source)
            out = memory[1].as_strided((rows, vocab), (41, 1), 200 + target)
            x.copy_(logits)
            want = memory.clone()
            want[1].as_strided((rows, vocab), (41, 1), 200 + target).copy_(expected(logits, 9).view(dtype))
            assert top_k_mask_logits(x, 9, out=out, backend=backend) is out
            assert torch.equal(bits(want), bits(memory)), (dtype, source, target)


def rows_of_out_may_lie_between_rows_of_logits(backend, device):
    """Interleaved rows share no byte, so the call is legal, and the input is unchanged."""
    memory = _random(6, 33).to(device)
    before = memory.clone()
    top_k_mask_logits(memory[::2], 4, out=memory[1::2], backend=backend)
    assert _same(expected(before[::2], 4), memory[1::2])
    assert torch.equal(before[::2], memory[::2])


def expanded_logits_are_fine_out_of_place(backend, device):
    """Rows that are one row in memory give one answer each."""
    row = _random(1, 20)
    ks = torch.tensor([1, 5, 20])
    actual = top_k_mask_logits(row.to(device).expand(3, 20), ks.to(device), backend=backend)
    assert _same(expected(row.expand(3, 20), ks), actual)


def empty_tensors_are_legal(backend, device):
    """No rows, no columns, or neither: an empty answer of the same shape."""
    for shape in ((0, 5), (5, 0), (0, 0)):
        logits = torch.empty(shape, device=device)
        ks = torch.ones(shape[0], dtype=torch.int32, device=device)
        assert top_k_mask_logits(logits, 3, backend=backend).shape == shape
        assert top_k_mask_logits(logits, ks, out=torch.empty_like(logits), backend=backend).shape == shape
        assert top_k_mask_logits_(logits, ks, backend=backend) is logits


def a_new_result_is_contiguous(backend, device):
    """Whatever the input's strides, and it has the input's dtype and device."""
    actual = top_k_mask_logits(_random(4, 30)[:, :7].to(torch.float16).to(device), 2, backend=backend)
    assert (actual.stride(), actual.dtype, actual.device.type) == ((7, 1), torch.float16, device)


def an_illegal_call_writes_nothing(backend, device):
    """A partial overlap by one element, one row or another pitch, and a k inside the output, raise with memory as it was."""
    memory = torch.arange(64.0, device=device)
    logits = memory.as_strided((3, 8), (8, 1), 0)
    overlaps = [((8, 1), 1), ((8, 1), 8), ((9, 1), 0), ((16, 1), 7), ((8, 1), 23)]
    calls = [(logits, 2, memory.as_strided((3, 8), strides, offset)) for strides, offset in overlaps]
    calls.append((logits, memory.view(torch.int32)[5:8], logits))
    calls.append((memory.as_strided((3, 8), (4, 1), 0), 2, None))
    before = memory.clone()
    for x, k, out in calls:
        try:
            if out is None:
                top_k_mask_logits_(x, k, backend=backend)
            else:
                top_k_mask_logits(x, k, out=out, backend=backend)
        except ValueError:
            assert torch.equal(before, memory)
        else:
            raise AssertionError(f"accepted out with strides {x.stride() if out is None else out.stride()}")


FACTS = facts_of(dict(globals()))


if __name__ == "__main__":
    print_report(FACTS, *sys.argv[1:3])
