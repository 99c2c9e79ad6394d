"""The public functions: checks, choice of the backend, and the torch operators that stand for them under torch.compile.

An eager call goes straight to its backend; a dispatcher would cost more than the kernel of a short row. Whatever wants to see
operators (torch.compile, a dispatch mode, a tensor subclass) gets `torch.ops.warpcheck.*`, which run the same code.
"""

from typing import Any, Protocol, cast

import torch
from torch import Tensor

from impls import backends

from . import arguments

BACKENDS = ("cuda", "triton", "torch")


class Backend(Protocol):
    """What the module of a backend offers to this one."""

    def unavailable(self, device: torch.device) -> str | None: ...
    def launch(self, logits: Tensor, k: int | Tensor, out: Tensor) -> None: ...


def top_k_mask_logits(logits: Tensor, k: int | Tensor, *, out: Tensor | None = None, backend: str = "auto") -> Tensor:
    """Keeps each row's elements that are at least its k-th largest, bit for bit, and makes all others -inf.

    logits   [batch, vocab] float32, float16 or bfloat16; last stride 1 (when vocab > 1), any row stride and offset
    k        an int >= 0 for all rows, or an int32/int64 tensor [batch] on the same device, any stride. Values are clipped
             to vocab, a tensor's also to 0
    out      None for a new contiguous tensor; `logits` for in place; or a tensor like logits that shares no byte with it
    backend  "auto", or one of `BACKENDS`: "cuda" and "triton" allocate no device memory in place, "torch" does

    All ties of the k-th stay. NaN ranks above +inf, all NaNs tie, and -0.0 equals +0.0. k = 0 keeps nothing.

    Returns `out` if it was given. Raises ValueError or TypeError before a byte is written, when an argument is not as said
    here, a tensor requires grad, `out`'s rows overlap, `out` shares a byte with k, or the backend cannot run here.
    """
    if _is_eager(logits):
        return _run(logits, k, out, backend)
    return _through_operators(logits, k, out, backend)


def top_k_mask_logits_(logits: Tensor, k: int | Tensor, *, backend: str = "auto") -> Tensor:
    """`top_k_mask_logits` in place; returns `logits`. Its rows must not overlap."""
    if _is_eager(logits):
        return _run(logits, k, logits, backend)
    return _through_operators(logits, k, logits, backend)


def _run(logits: Tensor, k: int | Tensor, out: Tensor | None, backend: str) -> Tensor:
    checked_k = arguments.check(logits, k, out)
    module = _backend(backend, logits.device)
    if out is None:
        out = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    else:
        # Autograd must not use a saved tensor that was overwritten behind its back.
        torch.autograd.graph.increment_version(out)
    if logits.numel():
        module.launch(logits, checked_k, out)
    return out


def _backend(name: str, device: torch.device) -> Backend:
    return cast(Backend, backends.choose(str(__package__), BACKENDS, name, device))


def _is_eager(logits: Any) -> bool:
    """Whether nobody but the backend needs to see this call. Anything that is no tensor goes on to the checks."""
    return (
        not torch.compiler.is_compiling()
        and (type(logits) is Tensor or not isinstance(logits, Tensor))
        and torch._C._len_torch_dispatch_stack() == 0
    )


def _through_operators(logits: Tensor, k: int | Tensor, out: Tensor | None, backend: str) -> Tensor:
    operators = torch.ops.warpcheck
    k_rows = k if isinstance(k, Tensor) else None
    # Clipped here, since a schema's int has 64 bits. The checks come when the operator runs, on real tensors.
    k_scalar = 0 if isinstance(k, Tensor) else arguments.clip(k, logits.shape[-1] if logits.dim() else 0)
    if out is None:
        return operators.top_k_mask_logits(logits, k_rows, k_scalar, backend)
    if out is logits:
        operators.top_k_mask_logits_(logits, k_rows, k_scalar, backend)
    else:
        operators.top_k_mask_logits_out(logits, k_rows, k_scalar, backend, out)
    return out


# define and impl rather than custom_op, whose Python wrappers cost several microseconds a call. The operators that write
# return nothing: one that returned its argument could not be functionalised.
_LIBRARY = torch.library.Library("warpcheck", "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)


def _functional(logits: Tensor, k_rows: Tensor | None, k: int, backend: str) -> Tensor:
    return _run(logits, k if k_rows is None else k_rows, None, backend)


def _in_place(logits: Tensor, k_rows: Tensor | None, k: int, backend: str) -> None:
    _run(logits, k if k_rows is None else k_rows, logits, backend)


def _out(logits: Tensor, k_rows: Tensor | None, k: int, backend: str, out: Tensor) -> None:
    _run(logits, k if k_rows is None else k_rows, out, backend)


def _define() -> None:
    rest = "Tensor? k_rows, SymInt k, str backend"
    for schema, function, fake in (
        (f"top_k_mask_logits(Tensor logits, {rest}) -> Tensor", _functional, lambda x, *_: x.new_empty(x.shape)),
        (f"top_k_mask_logits_(Tensor(a!) logits, {rest}) -> ()", _in_place, lambda *_: None),
        (f"top_k_mask_logits_out(Tensor logits, {rest}, Tensor(a!) out) -> ()", _out, lambda *_: None),
    ):
        name = schema.partition("(")[0]
        _LIBRARY.define(schema, tags=_TAGS)
        for key in ("CPU", "CUDA"):
            _LIBRARY.impl(name, function, key)
        torch.library.register_fake(f"warpcheck::{name}", fake, lib=_LIBRARY)


_define()
