"""Running CUDA kernels on the CPU, for testing: the same source, compiled by g++, one fiber for each CUDA thread.

It is slow and strict. What a GPU would hide or hang on (a barrier that some threads miss, a shuffle with lanes that have exited,
an access to nowhere) is a `HostExecutionError`. `executing` chooses the order of threads and what is checked. README.md says how
it works, what it sees and what it does not.
"""

from .compiler import unavailable
from .execute import HostExecutionError, HostKernel, HostOptions, current_options, executing

__all__ = ["HostExecutionError", "HostKernel", "HostOptions", "current_options", "executing", "unavailable"]
