# ruff: noqa: SIM300
"""Faults planted in CUDA are found without a GPU, each by the command and under the name that fit it, once."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from harness import corpus, operators
from harness.case import Case, Fill
from harness.corpus import Entry
from harness.implementations import load
from harness.judge import Judge
from harness.resize import sizes
from harness.sanitize import CHECKS, Config, Sanitizer
from impls.cuda_build import execution
from impls.cuda_build.host import HostExecutionError, HostOptions, executing, unavailable
from tests.harness.making import mask_case, prefill_case
from tests.planted.campaigns import hunt
from tests.planted.cuda import FAULTS, CudaFault

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

SEED = 1
AT_MOST = 1500
AFTER = 200
"""Cases after the first failure; most of them are variants that a planted module leaves out."""
DRAWN = 16
NO_RESERVE = 0x4000
"""Linux's MAP_NORESERVE."""


def found(fault: CudaFault, folder: Path) -> list[Entry]:
    """The corpus after the fault's command has run over it."""
    if fault.by == "fuzz":
        return hunt(fault.operator, fault.spec, seed=SEED, cases=AT_MOST, after=AFTER, folder=folder).entries
    config = Config({fault.operator: (fault.spec,)}, examples=DRAWN, schedules=1, seed=SEED, corpus=folder)
    Sanitizer(config, lambda event: None).run()
    return [entry for _, entry in corpus.entries(folder) if isinstance(entry, Entry)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.operator}-{fault.name}")
def test_fault_is_found(fault: CudaFault, tmp_path: Path) -> None:
    """One entry: its kind, its words, the check or order it needs and no more, shrunk to its minimum."""
    entries = found(fault, tmp_path)
    assert [fault.kind] == [entry.signature.kind for entry in entries], [str(entry.signature) for entry in entries]
    entry = entries[0]
    assert isinstance(entry.subject, Case)
    assert fault.error in entry.signature.error
    assert (fault.checks, fault.scheduled) == (entry.subject.checks, entry.subject.schedule > 0)
    assert (True, ()) == (entry.reduced, entry.context)
    got = sizes(entry.subject, operators.get(fault.operator).dimensions(entry.subject))
    assert {name: min(got[name], most) for name, most in fault.minimum} == {
        name: got[name] for name, _ in fault.minimum
    }


def test_a_row_offset_of_32_bits() -> None:
    """Three rows 2^30 elements apart, of which only the rows themselves are memory: the product for the third overflows."""
    from tests.planted.cuda.mask import row_offset_int

    size = (2 << 32) + 4096
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE) as room:
        logits = torch.frombuffer(room, dtype=torch.float32).as_strided((3, 4), (1 << 30, 1))
        logits.copy_(torch.arange(12.0).view(3, 4))
        for checks, words in (
            (("undefined",), "a signed product overflows"),
            (("memory",), "bytes outside of every tensor"),
        ):
            allowed = [(logits.data_ptr(), size)]
            with execution(0, checks, allowed), pytest.raises(HostExecutionError, match=words) as caught:
                row_offset_int(logits, 2, out=torch.empty(3, 4))
            assert "device_error" == caught.value.kind
        del logits  # it holds the memory


MASKS = (
    mask_case(3, 150, fill=Fill("spread", 1), k=20, form="in_place"),
    mask_case(5, 33, fill=Fill("choice", 2, (1.0, 2.0, "nan")), k=(1, 5, 33, 0, 7), dtype="float16", offset=2),
)
PREFILLS = (
    prefill_case(20, 70, causal=True, return_lse=True),
    prefill_case(9, 40, heads=(2, 2), mask=True, form="out_is_q", use_fp16_qk_reduction=True),
)
ORDERS = 50
"""Of each case: 200 in all."""


@pytest.mark.parametrize("case", [*MASKS, *PREFILLS], ids=lambda case: f"{case.operator}-{case.params['form']}")
def test_the_production_kernels_are_clean(case: Case) -> None:
    """Under all checks at once, and in arbitrary orders, every eighth of them checked: right, and the same bits."""
    kernel = load(case.operator, "cuda")
    for seed in range(ORDERS + 1):
        checks = CHECKS if seed % 8 == 0 else ()
        verdict = Judge(replace(case, schedule=seed, checks=checks), "cpu").judge(kernel)
        assert ("pass", "") == (verdict.kind, verdict.message), seed


WAITS = (
    "__syncthreads();  // the keys are there for all, and all are done with the tile before",
    "__syncthreads();  // the values are there for all, and all are done with the keys",
    "ptx::cp_async_wait<kAhead == 1 ? 0 : kAhead - 2>();",
    "ptx::cp_async_wait<0>();\n      __syncthreads();  // the values",
)


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_taken_out_of_the_attention_kernel_is_missed(wait: str) -> None:
    """Race or unwritten memory, on the architecture that has one buffer of each."""
    from unittest.mock import patch

    from impls.single_prefill import cuda, single_prefill_with_kv_cache
    from tests.planted.cuda.prefill import kernel_of, replaced

    q, k = (torch.randn(length, 1, 128, dtype=torch.float16) for length in (70, 150))
    checks = frozenset({"race", "memory"})
    kept = "__syncthreads();  // the values" if wait.startswith("ptx::cp_async_wait<0>") else ""
    with patch.object(cuda, "_kernel", kernel_of(replaced("prefill.cu", wait, kept))):  # noqa: SIM117
        with executing(HostOptions(arch="sm_80", checks=checks)), pytest.raises(HostExecutionError) as caught:
            single_prefill_with_kv_cache(q, k, k, backend="cuda")
    assert ("device_error", True) == (caught.value.kind, "shared memory" in str(caught.value)), str(caught.value)
