"""Warpcheck: differential testing and fuzzing of GPU kernels against float64 oracles.

`kernel_property` makes a pytest test of your own kernel; everything else is the command `warpcheck`.
"""

from harness.property import kernel_property

__version__ = "0.1.0"

__all__ = ["__version__", "kernel_property"]
