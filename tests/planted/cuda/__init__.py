"""Faults planted in CUDA, one a kernel: what it takes threads, shared memory or a tensor core to get wrong.

mask.py has masks that are small kernels of their own (*.cu), prefill.py the production attention kernel with a slip.
Importing this needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

MASK, PREFILL = "top_k_mask_logits", "single_prefill"


@dataclass(frozen=True)
class CudaFault:
    """One bug. operator, name, where: whose, the function, and its file here. by: the command that is to find it.

    kind, error: what it is called, and words that its text has ("" where it has none). checks: what its entry needs.
    minimum: sizes that a shrunk case must not exceed.
    """

    operator: str
    name: str
    where: str
    by: str
    kind: str
    error: str = ""
    checks: tuple[str, ...] = ()
    minimum: tuple[tuple[str, int], ...] = ()

    @property
    def scheduled(self) -> bool:
        """Whether it shows in some orders of threads alone."""
        return self.name == "late_reader"

    @property
    def spec(self) -> str:
        return f"{HERE / self.where}:{self.name}"


def _mask(name: str, by: str, kind: str, error: str = "", checks: tuple[str, ...] = (), **minimum: int) -> CudaFault:
    return CudaFault(MASK, name, "mask.py", by, kind, error, checks, tuple(minimum.items()))


FAULTS = (
    _mask(
        "missing_barrier", "sanitize", "device_error", "race: shared memory, no barrier", ("race",), batch=1, vocab=1
    ),
    _mask("divergent_barrier", "fuzz", "device_error", "at different barriers", batch=1, vocab=1),
    _mask("wrong_mask", "fuzz", "device_error", "lacks the calling lane", batch=1, vocab=1),
    _mask("past_shared", "sanitize", "device_error", "outside of every __shared__", ("memory",), batch=1, vocab=1),
    _mask(
        "unwritten_shared", "sanitize", "device_error", "read that no thread of the block has written", ("memory",),
        batch=1, vocab=1,
    ),
    _mask(
        "in_place_blocks", "sanitize", "device_error", "race: global memory, nothing orders blocks", ("race",), batch=1, vocab=2
    ),
    _mask("misaligned_vector", "sanitize", "device_error", "misaligned", ("memory",), batch=2, vocab=5),
    _mask("stale_histogram", "fuzz", "wrong_set", batch=3, vocab=3),
    _mask("noncandidates_kept", "fuzz", "wrong_set", batch=1, vocab=2),
    _mask("range_wraps", "fuzz", "wrong_set", batch=1, vocab=2),
    _mask(
        "put_back_before_filled", "sanitize", "device_error", "race: global memory, no barrier", ("race",), batch=1, vocab=2
    ),
    _mask(
        "next_row_too_soon", "sanitize", "device_error", "race: shared memory, no barrier", ("race",), batch=2, vocab=1
    ),
    _mask("late_reader", "fuzz", "depends_on_poison", batch=1, vocab=2),
    CudaFault(
        PREFILL, "half_decoded_by_value", "prefill.py", "fuzz", "divergence", minimum=(("qo_len", 1), ("kv_len", 2))
    ),
    CudaFault(
        PREFILL, "fragment_in_the_wrong_layout", "prefill.py", "fuzz", "divergence",
        minimum=(("qo_len", 9), ("kv_len", 9)),
    ),
)  # fmt: skip
"""All but row_offset_int, which takes more memory than drawn cases have."""
