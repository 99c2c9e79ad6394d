"""The public function: checks, and choice of the backend and its tuning."""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from impls import backends

from . import arguments
from .call import Call, LogitsTransform
from .formats import DTYPES

BACKENDS = ("cuda", "triton", "torch")


class Backend(Protocol):
    """What the module of a backend offers to this one."""

    TUNING: tuple[dict[str, Any], ...]
    """Every choice of its tuning keywords, each complete, the default first."""

    def unavailable(self, device: torch.device) -> str | None: ...
    def launch(self, call: Call) -> None: ...


def single_prefill_with_kv_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    kv_layout: str = "NHD",
    window_left: int = -1,
    logits_soft_cap: float | None = None,
    alibi_slopes: Tensor | None = None,
    custom_mask: Tensor | None = None,
    sm_scale: float | None = None,
    use_fp16_qk_reduction: bool = False,
    return_lse: bool = False,
    out: Tensor | None = None,
    backend: str = "auto",
    logits_transform: LogitsTransform | None = None,
    **tuning: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scores) · v of one sequence, each query head h with the key and value head h // (Hq / Hkv).

    q                [qo_len, Hq, D] float16 or bfloat16; D is 64, 128 or 256; Hq a multiple of Hkv
    k, v             [kv_len, Hkv, D], or [Hkv, kv_len, D] with kv_layout="HND"; dtype and device of q
    causal           query i sees keys j <= i + kv_len - qo_len
    window_left      not negative: and keys j >= i + kv_len - qo_len - window_left
    logits_soft_cap  cap * tanh(score / cap), before the masks; None and 0 are off
    alibi_slopes     [Hq] float32: slope * (j - (i + kv_len - qo_len)) is added to the scaled score
    custom_mask      [qo_len, kv_len] bool, True where query i sees key j; not together with causal
    sm_scale         any finite number; None is 1 / sqrt(D)
    use_fp16_qk_reduction  accumulate q·k in float16 (float16 inputs only), after q was multiplied by a power of two
    return_lse       also return [qo_len, Hq] float32, the base-2 logarithm of each row's sum of exponentials
    out              None for a new contiguous tensor; `q` for in place; or a tensor like q that shares no byte with
                     another argument
    backend          "auto", or one of `BACKENDS`
    logits_transform CUDA code that replaces ALiBi and the soft cap ("cuda" only)
    tuning           keywords that the backend names in its TUNING; the first of its choices that has these values is taken

    Last strides are 1, all other strides and offsets are free; custom_mask and alibi_slopes may have any strides. Lengths may
    be zero. A query that sees no key gets output 0 and LSE -inf. NaN or inf in a key that is not seen changes nothing.

    Returns out, or (out, lse). Raises ValueError or TypeError before a byte is written when an argument is not as said
    here, a tensor requires grad, `out` overlaps itself, or the backend cannot run here or does not know a tuning keyword;
    and BuildError, likewise before, when a logits_transform does not compile.
    """
    k, v = arguments.check_tensors(q, k, v, kv_layout)
    arguments.check_mask(custom_mask, causal, q, k)
    arguments.check_slopes(alibi_slopes, q)
    arguments.check_flag("use_fp16_qk_reduction", use_fp16_qk_reduction)
    arguments.check_flag("return_lse", return_lse)
    if use_fp16_qk_reduction and q.dtype != torch.float16:
        raise ValueError(f"use_fp16_qk_reduction needs float16 inputs, got {DTYPES[q.dtype]}")
    window = arguments.window_of(window_left, k.shape[0])
    soft_cap = arguments.soft_cap_of(logits_soft_cap)
    scale = arguments.scale_of(sm_scale, q.shape[2])
    arguments.check_transform(logits_transform, soft_cap, alibi_slopes)
    if out is not None:
        arguments.check_out(out, q, {"k": k, "v": v, "custom_mask": custom_mask, "alibi_slopes": alibi_slopes})
    module = _backend(backend, q.device)
    if logits_transform is not None and module is not _loaded("cuda"):
        raise ValueError('logits_transform is CUDA code: only backend "cuda" takes it')
    choice = _choice(module, tuning)

    if out is None:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    else:
        # Autograd must not use a saved tensor that was overwritten behind its back.
        torch.autograd.graph.increment_version(out)
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device) if return_lse else None
    if q.shape[0]:
        call = Call(
            q=q,
            k=k,
            v=v,
            out=out,
            lse=lse,
            causal=causal,
            window_left=window,
            soft_cap=soft_cap,
            alibi_slopes=alibi_slopes,
            custom_mask=custom_mask,
            sm_scale=scale,
            fp16_qk=use_fp16_qk_reduction,
            logits_transform=logits_transform,
            tuning=choice,
        )
        module.launch(call)
    return out if lse is None else (out, lse)


def _choice(module: Backend, tuning: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first of a backend's TUNING that has the values given. Raises TypeError for an unknown keyword, else ValueError."""
    choices: tuple[dict[str, Any], ...] = getattr(module, "TUNING", ({},))
    if not tuning:
        return choices[0]
    for name in tuning:
        if name not in choices[0]:
            known = ", ".join(choices[0]) or "none"
            raise TypeError(f"unexpected keyword argument {name!r}; this backend's tuning keywords are: {known}")
    for choice in choices:
        if all(type(choice[name]) is type(value) and choice[name] == value for name, value in tuning.items()):
            return choice
    raise ValueError(f"no choice of this backend has {dict(tuning)}; there are: {', '.join(map(str, choices))}")


def _backend(name: str, device: torch.device) -> Backend:
    return cast(Backend, backends.choose(str(__package__), BACKENDS, name, device))


def _loaded(name: str) -> ModuleType | None:
    return sys.modules.get(f"{__package__}.{name}")
