"""A right attention kernel in plain torch, as coarse as the models allow: tensor-core sums, float32 in between, online softmax.

What the hardware approximates is made wrong at random, as far as its documentation admits. Nothing is taken from
`oracles.attention_*`: only the simulated tensor core of `oracles.rounding`.
"""

import math
from dataclasses import dataclass

import torch

from oracles.rounding import A100, TensorCore, round_to, simulate_matmul

LOG2E = math.log2(math.e)


@dataclass
class Kernel:
    """core, half_sums: q·k's accumulation. tanh, p, fp16_scale, tile, row_sum, lse: as the oracle's words.

    once: half_sums are made in float32 and rounded at the end. transform: a hook in place of ALiBi and soft cap, on float32.
    back_to_half: after all of these, if half_sums. seed: of the approximations' errors. Faults: late_cap masks before the
    soft cap, twice rounds the output by way of bfloat16.
    """

    core: TensorCore = A100
    half_sums: bool = False
    once: bool = False
    tanh: str = "exact"
    p: str = "input"
    fp16_scale: str = "after"
    tile: int | None = 64
    row_sum: str = "float32"
    lse: str = "log2"
    back_to_half: bool = False
    transform: object = None
    seed: int = 0
    late_cap: bool = False
    twice: bool = False

    def __call__(self, q, k, v, *, allowed, scale=None, soft_cap=None, slopes=None):
        """q [qo, Hq, D], k and v [kv, Hkv, D], allowed bool [qo, kv] -> out [qo, Hq, D], lse [qo, Hq] float32."""
        self._random = torch.Generator().manual_seed(self.seed)
        dtype, (_, heads, d) = q.dtype, q.shape
        kv_len, group = k.shape[0], heads // k.shape[1]
        q = q.double().transpose(0, 1)
        k, v = (x.double().transpose(0, 1).repeat_interleave(group, 0) for x in (k, v))
        scale = 1 / math.sqrt(d) if scale is None else scale
        slopes = None if slopes is None else slopes.view(-1, 1, 1)
        m = torch.full((*q.shape[:2], 1), -math.inf)
        total = torch.zeros(*q.shape[:2], 1)
        acc = torch.zeros(*q.shape)
        tile = self.tile or max(kv_len, 1)
        for start in range(0, kv_len, tile):
            keys = slice(start, min(start + tile, kv_len))
            s = self._scores(q, k[:, keys], scale, soft_cap, slopes, allowed[:, keys], start, kv_len)
            new = torch.maximum(m, s.amax(-1, keepdim=True))
            base = torch.where(new == -math.inf, 0, new)
            p = self._exp2(s - base)
            alpha = self._exp2(m - base)
            rounded = round_to(p.double(), dtype) if self.p == "input" else p.double()
            total = total * alpha + (rounded.float() if self.row_sum == "p" else p).sum(-1, keepdim=True)
            acc = simulate_matmul(rounded, v[:, keys], self.core, torch.float32, (acc * alpha).double()).float()
            m = new
        out = torch.where(total > 0, acc / total, acc)
        out = out.transpose(0, 1)
        if self.twice:
            out = out.to(torch.bfloat16)
        lse = m + self._log2(total)
        if self.lse == "ln":
            lse = lse * torch.tensor(math.log(2))
        return out.to(dtype), lse[..., 0].t()

    def _scores(self, q, k, scale, soft_cap, slopes, allowed, start, kv_len):
        """Base-2 scores of one tile, float32, masked."""
        if self.half_sums and self.fp16_scale == "power_of_two" and scale:
            exponent = min(0, math.frexp(scale)[1] - 1)
            q, scale = round_to(q * 2.0**exponent, torch.float16), scale / 2.0**exponent
        accumulator = torch.float16 if self.half_sums and not self.once else torch.float32
        sums = simulate_matmul(q, k.mT, self.core, accumulator)
        sums = (round_to(sums, torch.float16) if self.half_sums and self.once else sums).float()
        f32 = torch.tensor
        if self.late_cap:
            sums = torch.where(allowed, sums, -math.inf)
        if self.transform is not None:
            qo, kv = torch.arange(q.shape[1])[None, :, None], torch.arange(start, start + k.shape[1])[None, None]
            heads = torch.arange(len(q)).view(-1, 1, 1)
            s = self._half(self.transform(sums * f32(scale), heads, qo, kv, q.shape[1], kv_len).float()) * f32(LOG2E)
        elif soft_cap is None and slopes is None:
            s = (
                sums * (f32(scale) * f32(LOG2E))
                if not self.back_to_half
                else self._half(sums * f32(scale)) * f32(LOG2E)
            )
        else:
            s = sums * f32(scale)
            if slopes is not None:
                kv, qo = torch.arange(start, start + k.shape[1]), torch.arange(q.shape[1])[:, None]
                s = s + slopes * (kv - (qo + kv_len - q.shape[1])).float()
            if soft_cap is not None:
                s = self._tanh(s * (1 / f32(soft_cap))) * f32(soft_cap)
            s = self._half(s) * f32(LOG2E)
        return s if self.late_cap else torch.where(allowed, s, -math.inf)

    def _half(self, s):
        return round_to(s.double(), torch.float16).float() if self.half_sums and self.back_to_half else s

    def _off(self, x, size):
        """x in float64 off by up to size, relatively, and rounded to float32 within that."""
        wrong = torch.rand(x.shape, generator=self._random, dtype=torch.float64) * 2 - 1
        return (x * (1 + wrong * (size - 2.0**-24))).float()

    def _exp2(self, x):
        y = self._off(torch.exp2(x.double()), 2.0**-22)
        return torch.where(y < 2.0**-126, 0, y)

    def _log2(self, x):
        y = torch.log2(x.double())
        wrong = torch.rand(x.shape, generator=self._random, dtype=torch.float64) * 2 - 1
        near = ((x > 0.5) & (x < 2)).double()
        return (y + wrong * 2.0**-22 * (near + (1 - near) * y.abs().clamp(max=1e9))).float()

    def _tanh(self, x):
        """tanh.approx.f32, or the exact one by way of exp: coarser than a library's."""
        if self.tanh == "approximate":
            return self._off(torch.tanh(x.double()), 2.0**-11)
        above = 1 + self._exp2(x * torch.tensor(2 * LOG2E))
        return 1 - 2 * self._off(1 / above.double(), 2.0**-23)


def draw(heads, kv_heads, qo_len, kv_len, d, dtype, seed, size=1.0):
    """q, k, v of normal values times size, with a seed."""
    random = torch.Generator().manual_seed(seed)
    shapes = ((qo_len, heads, d), (kv_len, kv_heads, d), (kv_len, kv_heads, d))
    return tuple((torch.randn(*shape, generator=random) * size).to(dtype) for shape in shapes)


def causal(qo_len, kv_len):
    """Bottom-right."""
    return torch.arange(kv_len) <= torch.arange(qo_len)[:, None] + kv_len - qo_len


def small(kv_len=4, dtype=torch.float16):
    """One row, one head."""
    return draw(1, 1, 1, kv_len, 64, dtype, 1)


def infinite(sign, which=slice(1, 2)):
    """Scores of that infinity at some keys, by an infinite q."""
    q, k, v = small()
    q[0, 0, 0] = math.inf
    k[:, 0, 0] = -sign
    k[which, 0, 0] = sign
    return q, k, v
