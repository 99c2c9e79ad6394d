"""Faults planted in single_prefill, one bug a function, and correct look-alikes. Importing this needs no torch.

Nearly all are the tiled attention of attention.py with one step replaced; hooks.py has the production CUDA kernel with a
transform of its own. They run on any device.
"""

from __future__ import annotations

from pathlib import Path

from tests.planted.fault import Fault, LookAlike

HERE = Path(__file__).parent
OPERATOR = "single_prefill"

VALUES = ("divergence", "wrong_nan", "wrong_inf")


def _fault(name: str, where: str, kind: str, qo_len: int, kv_len: int, trigger: str, *, heads: int = 1) -> Fault:
    minimum = {"qo_len": qo_len, "kv_len": kv_len, "qo_heads": heads, "kv_heads": heads}
    kinds = VALUES if kind in VALUES else (kind,)
    return Fault(OPERATOR, HERE, name, where, (kind, *(k for k in kinds if k != kind)), minimum, trigger)


FAULTS: tuple[Fault, ...] = (
    _fault("causal_top_left", "masks.py", "divergence", 1, 2, "causal, kv_len > qo_len"),
    _fault("window_off_by_one", "masks.py", "divergence", 1, 1, "a window of 0: the last key alone"),
    _fault("mask_bits_reversed", "masks.py", "divergence", 1, 2, "custom mask [1, 0]"),
    _fault("kv_tail_not_masked", "masks.py", "divergence", 1, 1, "one key, 31 zeros beside it"),
    _fault("finite_minus_infinity", "masks.py", "divergence", 2, 2, "a score below -5e4, or no key allowed"),
    _fault("window_in_int32", "masks.py", "divergence", 1, 1, "a window of 2^31"),
    _fault("ignores_mask_stride", "masks.py", "divergence", 1, 2, "a mask whose keys are not side by side"),
    _fault("mask_shape_unchecked", "masks.py", "accepted_illegal", 1, 1, "a mask of another shape"),
    _fault("soft_cap_after_mask", "scores.py", "divergence", 2, 2, "a mask and a soft cap"),
    _fault("alibi_sign", "scores.py", "divergence", 1, 2, "slopes, two keys"),
    _fault("scale_twice_with_alibi_and_cap", "scores.py", "divergence", 1, 2, "slopes and a soft cap"),
    _fault("scale_zero_is_default", "scores.py", "divergence", 1, 2, "sm_scale = 0"),
    _fault("heads_by_modulo", "scores.py", "divergence", 1, 1, "4 query heads on 2", heads=4),
    _fault("hnd_taken_for_nhd", "scores.py", "divergence", 1, 2, "HND", heads=2),
    _fault("ignores_head_stride", "scores.py", "depends_on_poison", 1, 2, "two heads, padded", heads=2),
    _fault("ignores_slope_stride", "scores.py", "depends_on_poison", 1, 2, "slopes of stride 2, two heads", heads=2),
    _fault("flag_ignored", "scores.py", "accepted_illegal", 1, 1, "the flag with bfloat16"),
    _fault("half_decoded_by_value", "scores.py", "divergence", 1, 2, "the flag; a NaN is a number then"),
    _fault("lse_in_natural_log", "softmax.py", "divergence", 1, 1, "return_lse"),
    _fault("empty_rows_are_nan", "softmax.py", "wrong_nan", 2, 1, "no key allowed"),
    _fault("accumulator_not_rescaled", "softmax.py", "divergence", 1, 33, "the maximum in the second tile of 32"),
    _fault("p_rounded_to_8_bits", "softmax.py", "divergence", 1, 3, "two keys of different weight"),
    _fault("maximum_rounded_apart", "softmax.py", "wrong_nan", 1, 2, "scores near 2^33"),
    _fault("output_rounded_twice", "softmax.py", "divergence", 1, 1, "float16"),
    _fault("last_row_of_a_tile_lost", "output.py", "unwritten_output", 16, 1, "16 queries"),
    _fault("out_written_before_q_is_read", "output.py", "divergence", 1, 2, "out=q"),
    _fault("divides_by_kv_len", "output.py", "refused", 1, 0, "no keys"),
    _fault("own_transform_slipped", "hooks.py", "divergence", 1, 2, "two keys"),
    _fault("accepts_head_dim_96", "output.py", "accepted_illegal", 1, 1, "head dim 96"),
)


TILED = ("tiled", "naive_softmax", "split_over_kv", "reversed_tiles", "larger_tiles", "float64_inside")

LOOKALIKES: tuple[LookAlike, ...] = (
    *(LookAlike(OPERATOR, HERE, name, cases=120) for name in TILED),
    LookAlike(OPERATOR, HERE, "own_transform", "hooks.py", cases=60),
)
