"""The Triton kernel: attention with an online softmax in base 2, one program for a block of queries of one head.

Under TRITON_INTERPRET=1 (set before this module is imported) it runs on CPU tensors. NumPy has no bfloat16, and Triton's
interpreter truncates where a GPU rounds, so there bfloat16 tensors come as int16 (BITS) and are widened and rounded by hand.
"""

import triton
import triton.language as tl

_LOG2_E = tl.constexpr(1.4426950408889634)
_COARSE = tl.constexpr(2.0**28)
"""Below, a score times a factor is rounded by 2^3 at most, and a weight off by 2^8 for that, which every format holds."""


@triton.jit
def _widened(x: tl.tensor, BITS: tl.constexpr) -> tl.tensor:
    """What was loaded, as an operand of tl.dot."""
    if BITS:
        return (x.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    return x


@triton.jit
def _bits(x: tl.tensor) -> tl.tensor:
    """float32 to the nearest bfloat16, ties to even, as int16."""
    bits = x.to(tl.uint32, bitcast=True)
    rounded = tl.add(bits, 0x7FFF + ((bits >> 16) & 1), sanitize_overflow=False) >> 16
    return tl.where(x != x, 0x7FC0, rounded).to(tl.uint16).to(tl.int16, bitcast=True)


@triton.jit
def _narrowed(x: tl.tensor, like: tl.tensor, BITS: tl.constexpr) -> tl.tensor:
    """float32 rounded to the inputs' dtype, as an operand of tl.dot."""
    if BITS:
        return _widened(_bits(x), True)
    return x.to(like.dtype)


@triton.jit
def _tanh(x: tl.tensor, INTERPRETED: tl.constexpr) -> tl.tensor:
    """Relative error 2^-11, by the GPU's own instruction; in the interpreter, which knows no assembly, 2^-22."""
    if INTERPRETED:
        size = tl.abs(x)
        far = 1.0 - 2.0 / (tl.exp(2.0 * size) + 1.0)
        z = x * x  # near 0, where the quotient would cancel, a polynomial (Cephes' tanhf)
        p = -5.70498872745e-3 * z + 2.06390887954e-2
        p = p * z - 5.37397155531e-2
        p = p * z + 1.33314422036e-1
        p = p * z - 3.33332819422e-1
        return tl.where(size < 0.625, p * z * x + x, tl.where(x < 0, -far, far))
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _capped(
    x: tl.tensor, factor: tl.tensor, soft_cap: tl.tensor, FP16_QK: tl.constexpr, INTERPRETED: tl.constexpr
) -> tl.tensor:
    """tanh(x * factor), of which the softmax's factor makes the score; with FP16_QK the score itself, as a half holds it."""
    x = _tanh(x * factor, INTERPRETED)
    if FP16_QK:
        x = (x * soft_cap).to(tl.float16).to(tl.float32)
    return x


@triton.jit
def _exponent(scores: tl.tensor, largest: tl.tensor, factor: tl.tensor, huge: tl.tensor, power: tl.tensor) -> tl.tensor:
    """(scores - largest) * factor, for the largest score of each row, or 0; a common addend of a row does not count.

    One fused multiply-add a score: scores * factor - largest * factor, the first product exact and the second rounded, so that
    at the largest it is what that was rounded by. That may be anything where scores are huge, and 2^that would overflow or
    vanish: there, a power of two takes the factor's place, with which both products are exact. Different scores of that size
    are 2^3 apart at least after it, and known to far less than the power is off by.
    """
    factor = tl.where(tl.abs(largest) < huge, factor, power)
    return scores * factor[:, None] - (largest * factor)[:, None]


@triton.jit
def _tile(
    state: tl.tuple,
    problem: tl.tuple,
    scales: tl.tuple,
    mask: tl.tensor,
    slope: tl.tensor,
    start: tl.tensor,
    BOUNDED: tl.constexpr,
    FP16_QK: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    EARLY: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_KV: tl.constexpr,
    INTERPRETED: tl.constexpr,
    BITS: tl.constexpr,
) -> tl.tuple:
    """The state of the online softmax after the keys [start, start + BLOCK_KV). With BOUNDED some may be hidden from a row.

    With EARLY the largest score is that of the largest argument of tanh, which is found while others are still in tanh.
    """
    acc, largest, total = state
    q, k, v, k_row, v_row, mask_row, mask_column, rows, qo_len, kv_len, window = problem
    scale, soft_cap, inverse_cap, factor, huge, power = scales
    lanes = tl.arange(0, BLOCK_KV)
    dims = tl.arange(0, q.shape[1])
    keys = start + lanes
    k_tile = k + start.to(tl.int64) * k_row
    v_tile = v + start.to(tl.int64) * v_row
    if ALIGNED:  # said of this very pointer: the compiler adds its offsets up, and loses what was said of a part
        k_tile = tl.multiple_of(k_tile, 16)
        v_tile = tl.multiple_of(v_tile, 16)
    k_tile += lanes[:, None] * k_row + dims[None, :]
    v_tile += lanes[:, None] * v_row + dims[None, :]
    if BOUNDED:
        # Zeros after the last key: what lies there may be NaN, and 0 · NaN is NaN.
        k_block = tl.load(k_tile, mask=(keys < kv_len)[:, None], other=0)
        v_block = tl.load(v_tile, mask=(keys < kv_len)[:, None], other=0)
    else:
        k_block = tl.load(k_tile)
        v_block = tl.load(v_tile)
    k_block = _widened(k_block, BITS)
    v_block = _widened(v_block, BITS)

    if FP16_QK:
        scores = tl.dot(q, tl.trans(k_block), out_dtype=tl.float16).to(tl.float32)
    else:
        scores = tl.dot(q, tl.trans(k_block))
    position = rows + (kv_len - qo_len)
    to_cap = scale * inverse_cap
    if slope is not None:
        scores = scores * scale + slope * (keys[None, :] - position[:, None]).to(tl.float32)
        to_cap = inverse_cap
        if FP16_QK and not SOFT_CAP:
            scores = scores.to(tl.float16).to(tl.float32)
    ranked = scores
    if SOFT_CAP:
        scores = _capped(scores, to_cap, soft_cap, FP16_QK, INTERPRETED)
        if not EARLY:
            ranked = scores
    if BOUNDED:
        visible = (keys < kv_len)[None, :]
        if CAUSAL:
            visible &= keys[None, :] <= position[:, None]
        if WINDOW:
            visible &= keys[None, :] >= position[:, None] - window
        if mask is not None:
            cells = mask + rows[:, None].to(tl.int64) * mask_row + keys[None, :].to(tl.int64) * mask_column
            visible &= tl.load(cells, mask=(rows < qo_len)[:, None] & (keys < kv_len)[None, :], other=0) != 0
        scores = tl.where(visible, scores, float("-inf"))
        ranked = tl.where(visible, ranked, float("-inf"))

    # Whatever a maximum makes of NaN: a NaN score is a NaN weight, and makes the row's total NaN.
    tile_largest = tl.max(ranked, 1)
    if EARLY:
        tile_largest = _capped(tile_largest, to_cap, soft_cap, FP16_QK, INTERPRETED)
    new_largest = tl.maximum(largest, tile_largest)
    # Nothing seen yet: subtract 0, for -inf - -inf would be NaN.
    subtracted = tl.where(new_largest == float("-inf"), 0.0, new_largest)
    weights = tl.exp2(_exponent(scores, subtracted, factor, huge, power))
    rescale = tl.exp2((largest - subtracted) * factor)
    total = total * rescale + tl.sum(weights, 1)
    acc = acc * rescale[:, None]
    acc = tl.dot(_narrowed(weights, v_block, BITS), v_block, acc)
    return acc, new_largest, total


# No specialisation on values or alignment: the variants are then exactly those that `triton.py` lists, and build covers them.
@triton.jit(
    do_not_specialize=[
        "q_row", "q_head", "k_row", "k_head", "v_row", "v_head", "out_row", "out_head", "mask_row", "mask_column",
        "slope_stride", "qo_len", "kv_len", "heads", "group", "window", "write_lse",
    ],
    do_not_specialize_on_alignment=["q", "k", "v", "out", "lse", "slopes", "mask"],
)  # fmt: skip
def attend(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    out: tl.tensor,
    lse: tl.tensor,
    slopes: tl.tensor,
    mask: tl.tensor,
    q_row: tl.int64,
    q_head: tl.int64,
    k_row: tl.int64,
    k_head: tl.int64,
    v_row: tl.int64,
    v_head: tl.int64,
    out_row: tl.int64,
    out_head: tl.int64,
    mask_row: tl.int64,
    mask_column: tl.int64,
    slope_stride: tl.int64,
    qo_len: tl.int32,
    kv_len: tl.int32,
    heads: tl.int32,
    group: tl.int32,
    window: tl.int32,
    write_lse: tl.int32,
    q_factor: tl.float32,
    scale: tl.float32,
    soft_cap: tl.float32,
    inverse_cap: tl.float32,
    HEAD_DIM: tl.constexpr,
    FP16_QK: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    EARLY: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_KV: tl.constexpr,
    INTERPRETED: tl.constexpr,
    BITS: tl.constexpr,
) -> None:
    """Strides are in elements, with ALIGNED in units of 8 elements but for the mask and slopes.

    q_factor: sign of sm_scale (or 0) times a power of two, for q; scale > 0: the rest, times log2(e) when there is no transform.
    """
    UNIT: tl.constexpr = 8 if ALIGNED else 1
    head = tl.program_id(0) % heads
    kv_head = (head // group).to(tl.int64)
    # With a causal mask the last queries have the most keys: they start first.
    first = (tl.cdiv(qo_len, BLOCK_Q) - 1 - tl.program_id(0) // heads) * BLOCK_Q
    last = tl.minimum(first + BLOCK_Q, qo_len) - 1
    rows = first + tl.arange(0, BLOCK_Q)
    dims = tl.arange(0, HEAD_DIM)
    inside = (rows < qo_len)[:, None]

    q_base = q + head.to(tl.int64) * (q_head * UNIT) + first.to(tl.int64) * (q_row * UNIT)
    out_base = out + head.to(tl.int64) * (out_head * UNIT) + first.to(tl.int64) * (out_row * UNIT)
    if ALIGNED:
        q_base = tl.multiple_of(q_base, 16)
        out_base = tl.multiple_of(out_base, 16)
    lanes = tl.arange(0, BLOCK_Q)
    loaded = tl.load(q_base + lanes[:, None] * (q_row * UNIT) + dims[None, :], mask=inside, other=0)
    q_block = _narrowed(_widened(loaded, BITS).to(tl.float32) * q_factor, loaded, BITS)
    k_base = k + kv_head * (k_head * UNIT)
    v_base = v + kv_head * (v_head * UNIT)
    slope = None
    if slopes is not None:
        slope = tl.load(slopes + head.to(tl.int64) * slope_stride)

    # Tiles from `begin` on have a visible key; those in [full, bounded) have nothing else, for every row of the block.
    begin = tl.full((), 0, tl.int32)
    full = begin
    end = kv_len
    bounded = kv_len // BLOCK_KV * BLOCK_KV
    offset = kv_len - qo_len
    if WINDOW:
        begin = tl.maximum(first + offset - window, 0) // BLOCK_KV * BLOCK_KV
        full = tl.cdiv(tl.maximum(last + offset - window, 0), BLOCK_KV) * BLOCK_KV
    if CAUSAL:
        end = tl.maximum(last + offset + 1, 0)
        bounded = tl.maximum(first + offset + 1, 0) // BLOCK_KV * BLOCK_KV
    # Unaligned loads are slow whatever is masked, and a loop of their own for full tiles would take long to compile.
    SPLIT: tl.constexpr = mask is None and ALIGNED
    if not SPLIT:
        bounded = full
    bounded = tl.maximum(bounded, full)
    before = tl.cdiv(tl.maximum(tl.minimum(full, end) - begin, 0), BLOCK_KV)
    after = tl.cdiv(tl.maximum(end - bounded, 0), BLOCK_KV)

    acc = tl.zeros((BLOCK_Q, HEAD_DIM), tl.float32)
    largest = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    state = acc, largest, total
    # What makes base 2 of the scores that come to the softmax.
    factor = scale
    if SOFT_CAP or slopes is not None:
        factor = tl.full((), _LOG2_E, tl.float32)
        if SOFT_CAP and not FP16_QK:
            factor = soft_cap * _LOG2_E
    problem = (
        q_block, k_base, v_base, k_row * UNIT, v_row * UNIT, mask_row, mask_column, rows, qo_len, kv_len, window,
    )  # fmt: skip
    power = (factor.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    scales = scale, soft_cap, inverse_cap, factor, _COARSE / factor, power
    # The interpreter of Triton 3.6 cannot make a range of tensors under NumPy 2.4, and the compiler pipelines no `while`.
    if INTERPRETED:
        start = full
        while start < bounded:
            state = _tile(
                state, problem, scales, mask, slope, start, False, FP16_QK, CAUSAL, WINDOW, SOFT_CAP, EARLY, ALIGNED,
                BLOCK_KV, INTERPRETED, BITS,
            )  # fmt: skip
            start += BLOCK_KV
        index = tl.full((), 0, tl.int32)
        while index < before + after:
            start = tl.where(index < before, begin + index * BLOCK_KV, bounded + (index - before) * BLOCK_KV)
            state = _tile(
                state, problem, scales, mask, slope, start, True, FP16_QK, CAUSAL, WINDOW, SOFT_CAP, EARLY, ALIGNED,
                BLOCK_KV, INTERPRETED, BITS,
            )  # fmt: skip
            index += 1
    else:
        if SPLIT:
            for start in tl.range(full, bounded, BLOCK_KV):
                state = _tile(
                    state, problem, scales, mask, slope, start, False, FP16_QK, CAUSAL, WINDOW, SOFT_CAP, EARLY, ALIGNED,
                    BLOCK_KV, INTERPRETED, BITS,
                )  # fmt: skip
        for index in tl.range(0, before + after):
            start = tl.where(index < before, begin + index * BLOCK_KV, bounded + (index - before) * BLOCK_KV)
            state = _tile(
                state, problem, scales, mask, slope, start, True, FP16_QK, CAUSAL, WINDOW, SOFT_CAP, EARLY, ALIGNED,
                BLOCK_KV, INTERPRETED, BITS,
            )  # fmt: skip
    acc, largest, total = state

    # Only a row that saw no key has a total of zero.
    answer = tl.where(total[:, None] == 0.0, 0.0, acc / total[:, None])
    if BITS:
        answer = _bits(answer)
    tl.store(out_base + lanes[:, None] * (out_row * UNIT) + dims[None, :], answer.to(out.dtype.element_ty), mask=inside)
    if write_lse:
        cells = lse + rows.to(tl.int64) * heads + head
        tl.store(cells, largest * factor + tl.log2(total), mask=rows < qo_len)
