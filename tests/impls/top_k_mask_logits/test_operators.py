"""The torch operators behind the functions: torch.compile, opcheck, autograd's version counter, inference mode."""

import pytest
import torch

from impls.top_k_mask_logits import top_k_mask_logits, top_k_mask_logits_
from tests.impls.top_k_mask_logits.brute_force import bits, expected

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def _logits(device="cpu"):
    return torch.randn(3, 20, generator=torch.Generator().manual_seed(1)).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("name", ["top_k_mask_logits", "top_k_mask_logits_", "top_k_mask_logits_out"])
def test_operators_pass_opcheck(name, per_row, device):
    """Schemas tell the truth about aliasing and mutation, fake results match real ones, and functionalisation works."""
    logits = _logits(device)
    k_rows = torch.tensor([1, 2, 30], device=device) if per_row else None
    arguments = (logits, k_rows, 4, "auto", *([torch.empty_like(logits)] if name.endswith("_out") else []))
    torch.library.opcheck(getattr(torch.ops.warpcheck, name).default, arguments)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("k", [4, torch.tensor([1, 0, 25])])
def test_compiled_functions_give_the_same_answer(k, device):
    """Out of place, in place and out= trace into one graph."""
    logits = _logits(device)
    k_here = k.to(device) if isinstance(k, torch.Tensor) else k

    def new(x):
        return top_k_mask_logits(x + 0, k_here)

    def in_place(x):
        y = x + 0
        assert top_k_mask_logits_(y, k_here) is y
        return y

    def into(x):
        y = torch.empty_like(x)
        top_k_mask_logits(x, k_here, out=y)
        return y

    for function in (new, in_place, into):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        assert torch.equal(expected(logits, k), bits(compiled(logits)).cpu())


def test_a_compiled_call_changes_its_argument_in_place():
    """Mutation of a graph's input reaches the caller's tensor."""
    torch._dynamo.reset()
    logits = _logits()
    torch.compile(top_k_mask_logits_, backend="aot_eager", fullgraph=True)(logits, 4)
    assert torch.equal(expected(_logits(), 4), bits(logits))


def test_a_compiled_call_is_checked_when_it_runs():
    """An illegal call raises the same error as without torch.compile."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, k: top_k_mask_logits(x, k), backend="aot_eager", fullgraph=True)
    with pytest.raises(ValueError, match="k must have shape"):
        compiled(_logits(), torch.tensor([1, 2]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("call", [lambda x: top_k_mask_logits_(x, 2), lambda x: top_k_mask_logits(x * 2, 2, out=x)])
def test_autograd_sees_a_tensor_it_saved_being_overwritten(call, device):
    """Backward through a saved tensor that was masked in place raises instead of using the masked values."""
    weight = torch.ones(3, 20, device=device, requires_grad=True)
    saved = _logits(device)
    product = (weight * saved).sum()
    call(saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_a_leaf_that_requires_grad_works_without_grad_mode():
    """Parameters can be masked under no_grad; the answer is detached."""
    logits = torch.nn.Parameter(_logits())
    with torch.no_grad():
        actual = top_k_mask_logits(logits, 3)
    assert torch.equal(expected(logits, 3), bits(actual))


def test_inference_tensors_can_be_written():
    """Inside and outside of inference mode, like any kernel's memory."""
    with torch.inference_mode():
        logits = _logits() + 0
        want = expected(logits, 3)
        other = logits.clone()
        top_k_mask_logits_(other, 3)
    top_k_mask_logits_(logits, 3)
    assert torch.equal(want, bits(other))
    assert torch.equal(want, bits(logits))


def test_fake_tensors_get_a_fake_answer():
    """A dispatch mode sees the operator instead of a kernel that would look for memory."""
    with torch._subclasses.FakeTensorMode():
        actual = top_k_mask_logits(torch.empty(3, 20, dtype=torch.float16), 2)
    assert (tuple(actual.shape), actual.dtype) == ((3, 20), torch.float16)
