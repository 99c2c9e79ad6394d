"""`execution`, which the module of a CUDA backend offers to whoever tests it: how its kernels run on the CPU, for a while."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager

from .host import HostOptions, executing

BUDGET = 10.0
"""Seconds of CPU time for a launch."""


def execution(
    schedule: int = 0, checks: Collection[str] = (), memory: Sequence[tuple[int, int]] = (), poison: int = 0xFF
) -> AbstractContextManager[None]:
    """Inside, launches on the CPU run threads and blocks in order (schedule 0) or in an order drawn from `schedule`.

    `checks` and `memory` are those of `HostOptions`; `memory` is read at each launch, so it may grow. `poison` is the byte that
    shared memory holds when a block starts.
    """
    return executing(
        HostOptions(
            seed=schedule or None,
            checks=frozenset(checks),
            memory=memory,  # type: ignore[arg-type]
            poison=poison,
            budget=BUDGET,
        )
    )
