"""Faults planted in top_k_mask_logits, one bug a function, and correct look-alikes. Importing this needs no torch.

Every function runs on a GPU; on the CPU it needs TRITON_INTERPRET=1. The faults of device.py are for a GPU only.
"""

from __future__ import annotations

from pathlib import Path

from tests.planted.fault import Fault, LookAlike

HERE = Path(__file__).parent
OPERATOR = "top_k_mask_logits"

SET = ("wrong_set", "wrong_nan")
"""An element masked or kept; a NaN that is masked has a kind of its own."""

VALUES = ("wrong_set", "divergence", "wrong_inf", "wrong_nan")


def _fault(name: str, where: str, kinds: tuple[str, ...], batch: int, vocab: int, trigger: str) -> Fault:
    minimum = {"batch": batch, "vocab": vocab}
    history = name == "stale_from_last_call"
    return Fault(OPERATOR, HERE, name, where, tuple(dict.fromkeys(kinds)), minimum, trigger, history)


FAULTS: tuple[Fault, ...] = (
    _fault("tail_not_masked", "bounds.py", ("wrong_set",), 1, 1, "k < vocab"),
    _fault("reads_past_end", "bounds.py", ("depends_on_poison", *SET), 1, 3, "k >= 1"),
    _fault(
        "writes_past_end",
        "bounds.py",
        ("wrote_outside", "changed_input", *SET, "nondeterministic"),
        1,
        1,
        "out given, or in place",
    ),
    _fault(
        "rows_left_unwritten", "bounds.py", ("unwritten_output", "wrong_set"), 1, 1, "not in place; in place: k = 0"
    ),
    # A row read from the padding and kept is poison in the output: to the harness that may look unwritten.
    _fault(
        "ignores_row_stride",
        "layout.py",
        ("depends_on_poison", "unwritten_output", *VALUES),
        2,
        1,
        "row stride 2, k = 1",
    ),
    _fault("ignores_k_stride", "layout.py", ("depends_on_poison", *SET), 2, 1, "k tensor of stride 2"),
    _fault("k_int64_read_as_int32", "layout.py", SET, 2, 1, "int64 k tensor, k[1] = 1"),
    _fault(
        "assumes_alignment",
        "layout.py",
        ("depends_on_poison", "wrote_outside", "unwritten_output", "changed_input", *VALUES),
        1,
        4,
        "float32, logits one element off alignment, k >= 1",
    ),
    _fault("drops_ties", "selection.py", SET, 1, 2, "two equal elements, k = 1"),
    _fault("k_at_vocab_off_by_one", "selection.py", SET, 1, 1, "k = 1"),
    _fault("minus_zero_below_zero", "selection.py", ("wrong_set",), 1, 2, "[0.0, -0.0], k = 1"),
    _fault("rounds_to_half", "selection.py", ("wrong_set",), 1, 2, "float32, [1, 1 + 2^-23], k = 1"),
    # Two elements less than 1e-9 apart are enough; an outlier takes three.
    _fault("gives_up_searching", "selection.py", ("wrong_set",), 1, 2, "[3e38, 2, 1], k = 2; or [1e-12, 0], k = 1"),
    _fault("stale_histogram", "selection.py", SET, 2, 2, "k = [2, 1], row 0 above row 1"),
    _fault("misses_its_bracket", "selection.py", ("wrong_set",), 1, 2, "[0, 1], k = 1"),
    _fault("forgets_candidates", "selection.py", ("wrong_set",), 1, 17, "elements 0, 8 and 16 above the bound"),
    _fault("pads_with_nan", "selection.py", ("wrong_set",), 1, 2, "float16 or bfloat16, k = 1"),
    _fault("erases_nan", "values.py", ("wrong_nan",), 1, 1, "[nan], k = 1"),
    _fault("finite_minus_infinity", "values.py", ("wrong_inf", "wrong_set"), 1, 1, "k < vocab"),
    _fault("returns_zeros", "values.py", ("divergence", *VALUES), 1, 1, "k = 1"),
    _fault("wrong_dtype_out", "values.py", ("wrong_metadata",), 1, 1, "float16 or bfloat16, no out"),
    _fault("in_place_rereads", "in_place.py", SET, 1, 17, "in place, k = 1"),
    _fault("changes_input", "in_place.py", ("changed_input",), 1, 1, "not in place, k < vocab"),
    # One row shifted by an element takes two columns; a column shifted by a row takes two rows.
    _fault("accepts_partial_overlap", "in_place.py", ("accepted_illegal",), 2, 2, "out shifted by one element or row"),
    _fault("sometimes_wrong", "process.py", ("nondeterministic",), 1, 1, "k = 1, and luck: one call of five"),
    _fault("hangs", "process.py", ("hang",), 1, 2, "[-inf, 0], k = 1"),
    _fault("dies", "process.py", ("process_died",), 1, 33, "int64 k tensor"),
    _fault("stale_from_last_call", "process.py", SET, 1, 1, "k = 0, then k = 1 with the same shape"),
    _fault("raises_runtime_error", "refusals.py", ("unclear_error",), 1, 1, "k = -1"),
    _fault("refuses_zero_rows", "refusals.py", ("refused",), 0, 1, "no rows"),
    _fault("illegal_address", "device.py", ("device_error",), 1, 101, "a GPU"),
    _fault("spins", "device.py", ("hang",), 1, 1, "a GPU; [-inf], k = 1"),
)


LOOKALIKES: tuple[LookAlike, ...] = (
    LookAlike(OPERATOR, HERE, "full_sort"),
    LookAlike(OPERATOR, HERE, "bisection"),
    LookAlike(OPERATOR, HERE, "float64_inside"),
    LookAlike(OPERATOR, HERE, "triton_correct", cases=60),
)
