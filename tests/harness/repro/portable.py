"""Entries of planted faults, minimal and made by hand, whose scripts are run where there is no Warpcheck."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from harness import implementations, signature
from harness.case import FORMAT, Case, Fill
from harness.corpus import Entry
from harness.judge import Judge
from harness.verdict import Evidence, Verdict
from tests.elsewhere import ROOT
from tests.harness.making import mask_case, prefill_case


@dataclass(frozen=True, eq=False)
class Subject:
    """A planted fault, the smallest call that shows it, and what the harness calls it.

    where: its file in tests/planted, without the .py. right: a correct function, in a file beside it.
    """

    where: str
    function: str
    case: Case
    kind: str
    right: str
    context: tuple[Case, ...] = ()

    @property
    def spec(self) -> str:
        return f"tests/planted/{self.where}.py:{self.function}"


def _mask(where: str, function: str, case: Case, kind: str, context: tuple[Case, ...] = ()) -> Subject:
    return Subject(f"top_k_mask_logits/{where}", function, case, kind, "lookalikes import full_sort", context)


def _prefill(where: str, function: str, case: Case, kind: str) -> Subject:
    return Subject(f"single_prefill/{where}", function, case, kind, "lookalikes import tiled")


def _other_mask(case: Case) -> Case:
    """With a mask that has a column too few."""
    view = case.tensors["custom_mask"]
    return replace(case, tensors={**case.tensors, "custom_mask": replace(view, shape=(1, 1), strides=(1, 1))})


def _padded_heads(case: Case) -> Case:
    """Every head of every tensor with a gap behind it."""
    tensors = {n: replace(view, strides=(256, 128, 1)) for n, view in case.tensors.items()}
    return replace(case, storages=tuple(view.end for view in tensors.values()), tensors=tensors)


ONES = Fill("cycle", 0, (1.0,))
ONE_HEAD = (1, 1)

SUBJECTS = (
    _mask("selection", "drops_ties", mask_case(1, 2, fill=ONES, k=1), "wrong_set"),
    _mask("values", "erases_nan", mask_case(1, 1, fill=Fill("cycle", 0, ("nan",)), k=1), "wrong_nan"),
    _mask("bounds", "writes_past_end", mask_case(1, 1, fill=ONES, form="out", k=1), "wrote_outside"),
    _mask("bounds", "rows_left_unwritten", mask_case(1, 1, fill=ONES, k=1), "unwritten_output"),
    _mask("bounds", "reads_past_end", mask_case(1, 3, fill=ONES, k=1), "depends_on_poison"),
    _mask("in_place", "changes_input", mask_case(1, 2, fill=ONES, k=0), "changed_input"),
    _mask("in_place", "in_place_rereads", mask_case(1, 17, fill=ONES, form="out_is_logits", k=1), "wrong_set"),
    _mask("values", "wrong_dtype_out", mask_case(1, 1, dtype="float16", fill=ONES, k=1), "wrong_metadata"),
    _mask("refusals", "raises_runtime_error", mask_case(1, 1, fill=ONES, k=-1), "unclear_error"),
    _mask("refusals", "refuses_zero_rows", mask_case(0, 1, fill=ONES, k=1), "refused"),
    _mask("process", "sometimes_wrong", mask_case(1, 1, fill=ONES, k=1), "nondeterministic"),
    _mask("process", "dies", mask_case(1, 33, fill=ONES, k=(1,)), "process_died"),
    _mask("process", "hangs", mask_case(1, 2, fill=Fill("cycle", 0, ("-inf", 0.0)), k=1), "hang"),
    _mask(
        "process",
        "stale_from_last_call",
        mask_case(1, 1, fill=ONES, k=1),
        "wrong_set",
        (mask_case(1, 1, fill=ONES, k=0),),
    ),
    _prefill("scores", "scale_zero_is_default", prefill_case(1, 2, heads=ONE_HEAD, sm_scale=0.0), "divergence"),
    _prefill("softmax", "lse_in_natural_log", prefill_case(1, 1, heads=ONE_HEAD, return_lse=True), "divergence"),
    _prefill("softmax", "empty_rows_are_nan", prefill_case(2, 1, heads=ONE_HEAD, causal=True), "wrong_nan"),
    _prefill(
        "masks", "mask_shape_unchecked", _other_mask(prefill_case(1, 2, heads=ONE_HEAD, mask=True)), "accepted_illegal"
    ),
    _prefill("scores", "ignores_head_stride", _padded_heads(prefill_case(1, 2, heads=(2, 2))), "depends_on_poison"),
    _prefill("output", "last_row_of_a_tile_lost", prefill_case(16, 1, heads=ONE_HEAD), "unwritten_output"),
    _prefill("output", "divides_by_kv_len", prefill_case(1, 0, heads=ONE_HEAD), "refused"),
)


def entry(subject: Subject) -> Entry:
    """As a campaign in the repository's root would keep it. What costs a process is not tried here."""
    with contextlib.chdir(ROOT):
        implementation = implementations.load(subject.case.operator, subject.spec)
        if subject.kind in ("process_died", "hang"):
            verdict = Verdict(subject.kind, subject.kind, Evidence(error=subject.kind))
        else:
            for case in subject.context:
                Judge(case, "cpu").judge(implementation)
            pairs = 20 if subject.kind == "nondeterministic" else 1
            verdict = Judge(subject.case, "cpu").judge(implementation, pairs=pairs)
    found = signature.signature(subject.case, implementation.name, verdict)
    return Entry(FORMAT, found, subject.case, verdict, subject.spec, "cpu", context=subject.context)


def mended(script: str, subject: Subject) -> str:
    """The same script with a correct kernel in the place of the fault."""
    module = Path(subject.where).name
    wrong = f"from {module} import {subject.function}\n"
    assert wrong in script
    return script.replace(wrong, f"from {subject.right} as {subject.function}\n")
