"""What several tests of the harness make: a case of the mask, and an implementation out of a function."""

from types import ModuleType

import torch
from hypothesis import HealthCheck, Phase, settings

from harness.case import Case, Fill, View, contiguous, tidy
from harness.implementations import Implementation

NAME = "top_k_mask_logits"
PLAIN = Fill("cycle", 0, (1.0, 2.0, 3.0))


def drawn(examples):
    """Settings of a property test: nothing that depends on time, nothing kept on disk."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow],
    )


def mask_case(batch=2, vocab=5, *, dtype="float32", form="new", k=2, fill=PLAIN, pitch=None, offset=0, out=None):
    """A call of top_k_mask_logits. k: an int, or a tuple of values for an int64 tensor [batch]. out: its view."""
    strides = contiguous((batch, vocab)) if pitch is None else (pitch, 1)
    tensors = {"logits": View(0, dtype, (batch, vocab), strides, offset)}
    fills = {"logits": fill}
    params = {"form": form}
    if isinstance(k, tuple):
        tensors["k"] = View(2, "int64", (batch,), (1,))
        fills["k"] = Fill("cycle", 0, k)
    else:
        params["k"] = k
    if form == "out":
        tensors["out"] = out or View(1, dtype, (batch, vocab), contiguous((batch, vocab)))
    return tidy(Case(NAME, params, (0, 0, 0), tensors, fills))


def prefill_case(
    qo_len=3,
    kv_len=5,
    *,
    heads=(2, 1),
    dim=64,
    dtype="float16",
    layout="NHD",
    form="new",
    mask=False,
    alibi=False,
    **params,
):
    """A call of single_prefill, every tensor dense in a storage of its own."""
    q = (qo_len, heads[0], dim)
    kv = (kv_len, heads[1], dim) if layout == "NHD" else (heads[1], kv_len, dim)
    shapes = {"q": q, "k": kv, "v": kv} | ({"out": q} if form == "out" else {})
    tensors = {n: View(i, dtype, shape, contiguous(shape)) for i, (n, shape) in enumerate(shapes.items())}
    fills = {name: Fill("uniform", i) for i, name in enumerate("qkv")}
    if layout != "NHD":
        params["kv_layout"] = layout
    if alibi:
        tensors["alibi_slopes"] = View(4, "float32", (heads[0],), (1,))
        fills["alibi_slopes"] = Fill("cycle", 0, (0.5,))
    if mask:
        tensors["custom_mask"] = View(5, "bool", (qo_len, kv_len), contiguous((qo_len, kv_len)))
        fills["custom_mask"] = Fill("cycle", 0, (1, 0))
    return tidy(Case("single_prefill", {"form": form, **params}, (0,) * 6, tensors, fills))


def right(logits, k, *, out=None):
    """The mask, by torch.sort: independent of the implementations under test, and right."""
    batch, vocab = logits.shape
    if not isinstance(k, torch.Tensor):
        k = torch.full((batch,), min(k, vocab), device=logits.device)
    slots = k.to(torch.int64).clamp(0, vocab)
    order = logits.float()
    order = torch.where(order.isnan(), torch.inf, order)
    rank = order + 0.0
    if vocab:
        least = rank.sort(dim=1, descending=True).values.gather(1, (slots - 1).clamp(min=0)[:, None])
        # Among +inf and NaN, both +inf here, NaN is above: a row whose k-th is a NaN keeps NaN alone.
        enough = logits.isnan().sum(1) >= slots
        keep = torch.where(enough[:, None], logits.isnan(), rank >= least) & (slots > 0)[:, None]
    else:
        keep = torch.zeros_like(logits, dtype=torch.bool)
    result = torch.where(keep, logits, -torch.inf).to(logits.dtype)
    if out is None:
        return result
    return out.copy_(result)


def checked(function):
    """The function behind the checks that the contract asks for."""
    from oracles import top_k_mask_logits as oracle

    def call(logits, k, *, out=None):
        reason = oracle.contract(logits, k, out, in_place=False)
        if reason is not None:
            raise ValueError(reason)
        return function(logits, k, out=out)

    return call


def implementation(function, *, in_place=None, name="broken", parameters=None, **module):
    """An Implementation whose module says what `module` holds."""
    home = ModuleType(name)
    vars(home).update(module)
    return Implementation(NAME, name, name, function, in_place, home, parameters)
