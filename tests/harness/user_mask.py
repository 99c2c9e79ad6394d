"""A user's file of kernels, which the tests copy to folders of their own: it knows torch and nothing of this project.

Every function is top_k_mask_logits with one bug, or with none once FIXED is True.
"""

import os
import signal
import time

import torch

FIXED = False
SEMANTICS = {"ties": "all", "nan": "keep"}
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
calls = 0


def places(x):
    """The address of every byte of a tensor."""
    at = torch.tensor([x.data_ptr()])
    for n, stride in zip(x.shape, x.stride()):
        at = at[..., None] + torch.arange(n) * (stride * x.element_size())
    return (at.reshape(-1, 1) + torch.arange(x.element_size())).reshape(-1)


def same(a, b):
    steps = zip(a.shape, a.stride(), b.stride())
    return a.shape == b.shape and a.data_ptr() == b.data_ptr() and all(n == 1 or s == t for n, s, t in steps)


def share(a, b):
    near = a.device == b.device and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return near and bool(torch.isin(places(a), places(b)).any())


def check(logits, k, out):
    if logits.ndim != 2 or logits.dtype not in FLOATS:
        raise TypeError("logits must be [batch, vocab], float32, float16 or bfloat16")
    if logits.shape[1] > 1 and logits.stride(1) != 1:
        raise ValueError("logits must have a last stride of 1")
    if isinstance(k, torch.Tensor):
        if k.dtype not in (torch.int32, torch.int64) or k.shape != logits.shape[:1] or k.device != logits.device:
            raise ValueError("k must be int32 or int64 [batch], on the device of logits")
    elif isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise ValueError("k must be an int, and not negative")
    if out is None:
        return
    if (out.shape, out.dtype, out.device) != (logits.shape, logits.dtype, logits.device):
        raise ValueError("out must be like logits")
    if out.shape[1] > 1 and out.stride(1) != 1:
        raise ValueError("out must have a last stride of 1")
    if out.shape[0] > 1 and out.stride(0) < out.shape[1]:
        raise ValueError("rows of out overlap")
    if (not same(out, logits) and share(out, logits)) or (isinstance(k, torch.Tensor) and share(out, k)):
        raise ValueError("out overlaps an input")


def kept(logits, k):
    """Which elements stay."""
    x = logits.to(torch.float64)
    if not x.numel():
        return torch.zeros_like(x, dtype=torch.bool)
    rank = torch.where(x.isnan(), torch.inf, x) + 0.0
    slots = k if isinstance(k, torch.Tensor) else torch.full((x.shape[0],), min(k, x.shape[1]), device=x.device)
    slots = slots.to(torch.int64).clamp(0, x.shape[1])[:, None]
    least = rank.sort(dim=1, descending=True).values.gather(1, (slots - 1).clamp(min=0))
    full = x.isnan().sum(1, keepdim=True) >= slots
    return torch.where(full, x.isnan(), rank >= least) & (slots > 0)


def write(out, logits, keep):
    """The result in `out`, or in fresh memory. Bits are moved, since a float's way may change a NaN."""
    if out is None:
        out = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    whole = torch.int32 if logits.dtype == torch.float32 else torch.int16
    lowest = torch.full((1,), -torch.inf, dtype=logits.dtype, device=logits.device).view(whole)
    result = torch.where(keep, logits.view(whole), lowest)
    out.view(whole).copy_(result)
    return out


def first_of_ties(logits, k, keep):
    """What a kernel keeps that drops ties; in rows of finite numbers, so that this bug looks the same wherever it is met."""
    slots = k[:, None] if isinstance(k, torch.Tensor) else k
    return keep & ((keep.cumsum(1) <= slots) | ~logits.isfinite().all(1, keepdim=True))


def good(logits, k, *, out=None):
    check(logits, k, out)
    return write(out, logits, kept(logits, k))


def good_(logits, k):
    return good(logits, k, out=logits)


def drops_ties(logits, k, *, out=None):
    """Keeps the first of a tie only."""
    check(logits, k, out)
    keep = kept(logits, k)
    return write(out, logits, keep if FIXED else first_of_ties(logits, k, keep))


def two_bugs(logits, k, *, out=None):
    """Drops ties, and gives float64 back for float16."""
    result = drops_ties(logits, k, out=out)
    return result.double() if result.dtype == torch.float16 and out is None and not FIXED else result


def accepts_anything(logits, k, *, out=None):
    """Right, but where it should refuse it gives back what it got."""
    try:
        return good(logits, k, out=out)
    except (TypeError, ValueError):
        if FIXED:
            raise
        return logits


def trusts(logits, k, *, out=None):
    """Right, but takes any int or bool for k."""
    return good(logits, max(int(k), 0) if isinstance(k, int) and not FIXED else k, out=out)


def writes_outside(logits, k, *, out=None):
    """One element more than out has."""
    result = good(logits, k, out=out)
    if out is not None and not FIXED:
        end = out.storage_offset() + sum((n - 1) * s for n, s in zip(out.shape, out.stride())) + 1
        out.as_strided((1,), (1,), end).fill_(5.0)
    return result


def changes_input(logits, k, *, out=None):
    """Sorts in the caller's memory, as it were."""
    result = good(logits, k, out=out)
    if out is not logits and logits.numel() and not FIXED:
        logits[0, 0] = 17.0
    return result


def leaves_last_column(logits, k, *, out=None):
    """Never writes the last element of a row."""
    check(logits, k, out)
    fresh = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device) if out is None else out
    width = logits.shape[1] if FIXED else logits.shape[1] - 1
    fresh[:, :width] = good(logits, k)[:, :width]
    return fresh


def reads_the_gap(logits, k, *, out=None):
    """Ranks the padding of a row together with the row."""
    check(logits, k, out)
    if FIXED or logits.stride(0) <= logits.shape[1]:
        return good(logits, k, out=out)
    wide = logits.as_strided((logits.shape[0], logits.shape[1] + 1), logits.stride())
    return write(out, logits, kept(wide, k)[:, : logits.shape[1]])


def washes_nan(logits, k, *, out=None):
    """Keeps a NaN, but another one."""
    check(logits, k, out)
    keep = kept(logits, k)
    same_nan = logits if FIXED else torch.where(logits.isnan(), torch.nan, logits)
    return write(out, same_nan, keep)


def erases_nan(logits, k, *, out=None):
    """A NaN becomes -inf."""
    check(logits, k, out)
    keep = kept(logits, k)
    return write(out, logits, keep if FIXED else keep & ~logits.isnan())


def ignores_pitch(logits, k, *, out=None):
    """Takes rows for adjacent."""
    check(logits, k, out)
    batch, vocab = logits.shape
    if FIXED or vocab < 2:
        return good(logits, k, out=out)
    return write(out, logits, kept(logits.as_strided((batch, vocab), (vocab, 1)), k))


def aligns_down(logits, k, *, out=None):
    """Reads rows from the 16 bytes that their start lies in."""
    check(logits, k, out)
    skew = logits.data_ptr() % 16 // logits.element_size()
    if FIXED or skew == 0:
        return good(logits, k, out=out)
    start = logits.as_strided(logits.shape, logits.stride(), logits.storage_offset() - skew)
    return write(out, start, kept(start, k))


def halves_k(logits, k, *, out=None):
    """Reads an int64 k as if it were int32."""
    check(logits, k, out)
    if isinstance(k, torch.Tensor) and k.dtype == torch.int64 and not FIXED:
        k = k.contiguous().view(torch.int32)[: k.shape[0]]
    return write(out, logits, kept(logits, k))


def wrong_in_place(logits, k, *, out=None):
    return good(logits, k, out=out)


def wrong_in_place_(logits, k):
    """Masks with one slot too many."""
    check(logits, k, logits)
    return write(logits, logits, kept(logits, k if FIXED or k == 0 else k + 1))


def rereads(logits, k, *, out=None):
    """Clears out before it reads logits: harmless unless they are one tensor."""
    check(logits, k, out)
    if out is not None and not FIXED:
        out.fill_(-torch.inf)
    return good(logits, k, out=out)


def refuses_zero(logits, k, *, out=None):
    check(logits, k, out)
    if isinstance(k, int) and k == 0 and not FIXED:
        raise ValueError("k must be positive")
    return good(logits, k, out=out)


def asserts(logits, k, *, out=None):
    """Checks, but with assertions."""
    try:
        return good(logits, k, out=out)
    except (TypeError, ValueError) as error:
        if FIXED:
            raise
        raise AssertionError(str(error)) from None


def other_tensor(logits, k, *, out=None):
    """Gives a tensor of its own back, not the one it was told to write."""
    result = good(logits, k, out=out)
    return result if FIXED else result.clone()


def other_dtype(logits, k, *, out=None):
    result = good(logits, k, out=out)
    return result if FIXED or out is not None else result.to(torch.float64)


def comes_and_goes(logits, k, *, out=None):
    """Wrong at every third call."""
    global calls
    calls += 1
    result = good(logits, k, out=out)
    return result if FIXED or calls % 3 else result.fill_(3.0)


def remembers(logits, k, *, out=None):
    """Wrong at every call that has other sizes than the process's first one."""
    check(logits, k, out)
    remembers.shape = getattr(remembers, "shape", logits.shape)
    keep = kept(logits, k)
    return write(out, logits, keep if FIXED or logits.shape == remembers.shape else ~keep)


def dies(logits, k, *, out=None):
    """Kills its process where the logits are float16."""
    result = good(logits, k, out=out)
    if logits.dtype == torch.float16 and not FIXED:
        os.kill(os.getpid(), signal.SIGSEGV)
    return result


def hangs(logits, k, *, out=None):
    """Waits for ever where the logits are bfloat16."""
    result = good(logits, k, out=out)
    while logits.dtype == torch.bfloat16 and not FIXED:
        pass
    return result


def speaks_markup(logits, k, *, out=None):
    """Refuses rows of more than three, in words that a terminal's markup would take for its own."""
    check(logits, k, out)
    if logits.shape[1] > 3 and not FIXED:
        raise ValueError("no rows [/vocab] in [red]")
    return good(logits, k, out=out)


def makes_a_scalar(logits, k, *, out=None):
    """Drops ties, and allocates scratch of no dimension and of odd strides."""
    torch.empty((), dtype=torch.float32, device=logits.device).fill_(1.0)
    torch.empty_strided((2, 3), (8, 2), device=logits.device).fill_(1.0)
    return drops_ties(logits, k, out=out)


def blocks(logits, k, *, out=None):
    """Right; but where k is a tensor it says so in a file, and spins until there is a file `go` beside it."""
    result = good(logits, k, out=out)
    folder = os.environ.get("WAITING_ROOM", ".")
    if isinstance(k, torch.Tensor) and not os.path.exists(f"{folder}/go"):
        with open(f"{folder}/waits-{os.getpid()}", "w") as file:
            file.write("here")
        while not os.path.exists(f"{folder}/go"):
            pass
    return result


def ties_then_waits(logits, k, *, out=None):
    """Drops ties; from its thirtieth wrong result on, it spins until there is a file `go`."""
    global calls
    check(logits, k, out)
    want = kept(logits, k)
    wrong = not torch.equal(want, first_of_ties(logits, k, want))
    calls += wrong
    folder = os.environ.get("WAITING_ROOM", ".")
    while wrong and calls >= 30 and not os.path.exists(f"{folder}/go"):
        with open(f"{folder}/waits-{os.getpid()}", "w") as file:
            file.write("here")
        time.sleep(0.01)
    return drops_ties(logits, k, out=out)
