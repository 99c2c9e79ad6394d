"""NVRTC, which makes a cubin of one translation unit; as a library, and as a command in a file of its own:

    python -P nvrtc.py --gpu-architecture=sm_80 --std=c++17 --include-path=DIRECTORY FILE

The command takes NVRTC's options as they are. It exits 0 where the file compiles, 1 with NVRTC's log on stderr where it does
not, 125 where there is no NVRTC. It starts in a tenth of a second, since it imports nothing but NVRTC's binding; `-P` keeps
the files beside it from being taken for other modules.
"""

import sys
from collections.abc import Sequence
from pathlib import Path


class CompilationFailed(RuntimeError):
    """NVRTC refused its input. `log` is everything it said."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


def compile_unit(text: bytes, name: str, options: Sequence[str]) -> bytes:
    """The cubin of `text`, which messages call `name`. Raises CompilationFailed, and RuntimeError when NVRTC fails otherwise."""
    from cuda.bindings import nvrtc

    def done(what: str, answer: tuple[object, ...]) -> object:
        status, *value = answer
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"{what} failed: {getattr(status, 'name', status)}")
        return value[0] if value else None

    program = done("nvrtcCreateProgram", nvrtc.nvrtcCreateProgram(text, name.encode(), 0, [], []))
    try:
        flags = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            size = done("nvrtcGetProgramLogSize", nvrtc.nvrtcGetProgramLogSize(program))
            log = bytearray(int(str(size)))
            done("nvrtcGetProgramLog", nvrtc.nvrtcGetProgramLog(program, log))
            said = log.rstrip(b"\0").decode(errors="replace").strip()
            raise CompilationFailed(said or f"error: {status.name}")
        size = done("nvrtcGetCUBINSize", nvrtc.nvrtcGetCUBINSize(program))
        cubin = bytearray(int(str(size)))
        done("nvrtcGetCUBIN", nvrtc.nvrtcGetCUBIN(program, cubin))
        return bytes(cubin)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def main(arguments: Sequence[str]) -> int:
    """The command: NVRTC's options, then the file. Returns the exit status."""
    *options, file = arguments
    try:
        text = Path(file).read_bytes()
        compile_unit(text, Path(file).name, options)
    except CompilationFailed as error:
        sys.stderr.buffer.write(error.log.encode())  # in any locale
        return 1
    except (ImportError, OSError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 125
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
