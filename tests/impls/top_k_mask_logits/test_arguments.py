"""Which calls are legal, said by the checks alone."""

import pytest
import torch

from impls.top_k_mask_logits import arguments, top_k_mask_logits, top_k_mask_logits_


def _logits(batch=2, vocab=8):
    return torch.arange(float(batch * vocab)).reshape(batch, vocab)


@pytest.mark.parametrize(
    ("error", "logits"),
    [
        (TypeError, [[1.0]]),
        (TypeError, None),
        (TypeError, torch.zeros(2, 8, dtype=torch.float64)),
        (TypeError, torch.zeros(2, 8, dtype=torch.int32)),
        (TypeError, torch.zeros(2, 8, dtype=torch.complex64)),
        (ValueError, torch.zeros(8)),
        (ValueError, torch.zeros(1, 2, 8)),
        (ValueError, torch.zeros(())),
        (ValueError, torch.zeros(8, 2).t()),
        (ValueError, torch.zeros(2, 8)[:, ::2]),
        (ValueError, torch.zeros(2, 8)[:, :1].expand(2, 8)),
        (ValueError, torch.zeros(2, 8).to_sparse()),
        (ValueError, torch.zeros(2, 8, device="meta")),
        (ValueError, torch.zeros(2, 8, dtype=torch.complex64).conj().imag[:, :1]),
        (ValueError, torch.zeros(2, 8, requires_grad=True)),
    ],
)
def test_wrong_logits_raise(error, logits):
    """Anything but a strided 2-D tensor of the three dtypes, last stride 1, plain and without gradient, is refused."""
    with pytest.raises(error):
        arguments.check(logits, 1, None)


@pytest.mark.parametrize(
    ("error", "k"),
    [
        (TypeError, True),
        (TypeError, 2.0),
        (TypeError, None),
        (TypeError, "2"),
        (TypeError, [1, 2]),
        (ValueError, -1),
        (TypeError, torch.tensor([1.0, 2.0])),
        (TypeError, torch.tensor([True, False])),
        (TypeError, torch.tensor([1, 2], dtype=torch.int16)),
        (ValueError, torch.tensor(2)),
        (ValueError, torch.tensor([2])),
        (ValueError, torch.tensor([1, 2, 3])),
        (ValueError, torch.tensor([[1], [2]])),
        (ValueError, torch.tensor([1, 2]).to("meta")),
        (ValueError, torch.tensor([1, 2]).to_sparse()),
    ],
)
def test_wrong_k_raises(error, k):
    """k is an int that is not negative, or an int32 or int64 tensor [batch] on the same device."""
    with pytest.raises(error):
        arguments.check(_logits(), k, None)


@pytest.mark.parametrize(
    ("error", "out"),
    [
        (TypeError, [1.0]),
        (TypeError, torch.zeros(2, 8, dtype=torch.float16)),
        (ValueError, torch.zeros(2, 9)),
        (ValueError, torch.zeros(16)),
        (ValueError, torch.zeros(8, 2).t()),
        (ValueError, torch.zeros(8).expand(2, 8)),
        (ValueError, torch.zeros(20).as_strided((2, 8), (7, 1))),
        (ValueError, torch.zeros(2, 8, device="meta")),
        (ValueError, torch.zeros(2, 8, requires_grad=True)),
    ],
)
def test_wrong_out_raises(error, out):
    """out is a tensor like logits whose rows don't overlap."""
    with pytest.raises(error):
        arguments.check(_logits(), 1, out)


@pytest.mark.parametrize(
    ("k", "checked"), [(0, 0), (3, 3), (8, 8), (9, 8), (1 << 100, 8), (torch.tensor(3).numpy()[()], 3)]
)
def test_an_int_k_is_clipped_to_vocab(k, checked):
    """Every integer type counts, of any size."""
    assert arguments.check(_logits(), k, None) == checked


def test_strides_of_sizes_one_do_not_matter():
    """A single row may have any row stride, and a single column any last stride, also when written."""
    memory = torch.zeros(40)
    row, column = memory.as_strided((1, 8), (0, 1)), memory.as_strided((3, 1), (8, 5))
    assert arguments.check(row, 1, row) == 1
    assert arguments.check(column, 1, column) == 1
    assert arguments.check(row, 1, memory.as_strided((1, 8), (3, 1))) == 1


def test_rows_of_one_column_overlap_only_at_stride_zero():
    """[batch, 1] written in place is legal at any stride but 0."""
    memory = torch.zeros(4)
    assert arguments.check(memory.as_strided((3, 1), (1, 1)), 1, memory.as_strided((3, 1), (1, 1))) == 1
    expanded = memory.as_strided((3, 1), (0, 1))
    with pytest.raises(ValueError, match="overlap"):
        arguments.check(expanded, 1, expanded)


def test_k_may_share_memory_with_logits_that_are_only_read():
    """Two inputs may overlap; k and a written tensor may not."""
    memory = torch.zeros(16)
    k = memory.view(torch.int32)[3:5]
    logits = memory.view(2, 8)
    assert arguments.check(logits, k, None) is k
    assert arguments.check(logits, k, torch.zeros(2, 8)) is k
    with pytest.raises(ValueError, match="share no byte with k"):
        arguments.check(logits, k, logits)


def test_k_between_the_rows_of_out_is_legal():
    """A strided k in the padding of the output shares no byte with it."""
    memory = torch.zeros(3, 10)
    k = memory.view(torch.int32)[:, 8]
    assert arguments.check(memory[:, :8], k, memory[:, :8]) is k
    with pytest.raises(ValueError, match="share no byte with k"):
        arguments.check(memory[:, :9], k, memory[:, :9])


@pytest.mark.parametrize("call", [lambda x: top_k_mask_logits(x, 2.5, out=x), lambda x: top_k_mask_logits_(x, -3)])
def test_a_refused_call_leaves_its_tensor_as_it_was(call):
    """Errors come before the first byte is written."""
    logits = _logits()
    with pytest.raises((TypeError, ValueError)):
        call(logits)
    assert torch.equal(_logits(), logits)


@pytest.mark.parametrize("backend", ["triton", "CUDA", "", None])
def test_a_backend_that_cannot_run_here_is_refused(backend):
    """CPU tensors have no Triton backend outside the interpreter; other names don't exist."""
    with pytest.raises(ValueError, match="backend"):
        top_k_mask_logits(_logits(), 2, backend=backend)


def test_a_lazily_negated_view_of_memory_is_refused():
    """The imaginary part of a conjugate has the negative bit: its memory holds other signs than torch shows."""
    imaginary = torch.zeros(8, 1, dtype=torch.complex64).conj().imag
    assert imaginary.is_neg()
    with pytest.raises(ValueError, match="negated"):
        arguments.check(imaginary, 1, None)
