"""Building and launching CUDA kernels at run time: NVRTC, a disk cache, and launches on torch's current stream.

`compile_cubin` turns a source file into machine code and needs neither a GPU nor a driver. `Kernel` is one entry point of such
a file, built and loaded on first use on each device; it runs on the CPU too, for testing (see `host`; `execution`
says how).
"""

from .build import BUILD_AXES, SUPPORTED_ARCHS, BuildError, BuildOptions, compile_cubin, unsupported_options
from .execution import execution
from .launch import Kernel, arch_of_device, sm_count, unavailable
from .units import TranslationUnit, translation_units

__all__ = [
    "BUILD_AXES",
    "SUPPORTED_ARCHS",
    "BuildError",
    "BuildOptions",
    "Kernel",
    "TranslationUnit",
    "arch_of_device",
    "compile_cubin",
    "execution",
    "sm_count",
    "translation_units",
    "unavailable",
    "unsupported_options",
]
