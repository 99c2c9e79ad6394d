"""CUDA kernels that run on the CPU: in which order their threads run, what is checked of them, what they may touch.

An implementation whose module has `execution` (see `harness.implementations`) lets the harness say so for each call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.case import Case
from harness.implementations import BadHook, Implementation
from harness.memory import POISONS, Memory


class Reach(TorchFunctionMode):
    """While active, `ranges` grows to all that a kernel may touch, as (address, bytes): the case's views, and the whole
    storage of any other tensor whose address is asked for, as it has to be before a kernel can get it."""

    ADDRESSES = frozenset({torch.Tensor.data_ptr, torch.Tensor.untyped_storage})

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.ranges = memory.extents()
        self._memory = memory
        self._seen: set[tuple[int, int]] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in self.ADDRESSES and args[0].layout == torch.strided and not self._memory.holds(args[0]):
            storage = args[0].untyped_storage()
            place = storage.data_ptr(), storage.nbytes()
            if place not in self._seen:
                self._seen.add(place)
                self.ranges.append(place)
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def executing(implementation: Implementation, case: Case, memory: Memory, poison: int) -> Iterator[None]:
    """Inside, the implementation's kernels run as the case says, with shared memory that starts as this poison. Nothing
    where it is not the CPU that runs them. Raises BadHook."""
    with contextlib.ExitStack() as stack:
        if implementation.executes(memory.device.type):
            reach = Reach(memory)
            hook: Any = implementation.module
            try:
                stack.enter_context(hook.execution(case.schedule, case.checks, reach.ranges, POISONS[poison]))
            except Exception as error:
                raise BadHook(f"execution of {implementation.name} raised {type(error).__name__}: {error}") from error
            stack.enter_context(reach)
        yield
