"""Static shared memory in a compiled kernel: room around each variable, and where the variables are.

Shared variables are thread-local ones here, which no sanitizer guards: so the assembly is given the guards, and the runtime the
places.
"""

import re
import struct

_GUARD_BYTES = 64
_SECTION = re.compile(r"\s*\.section\s+([^\s,]+)|\s*\.(?:text|data|bss)\b")
_ZERO = re.compile(r"\s*\.zero\s+\d+\s*$")

_SYMBOL_TABLE = 2
_THREAD_LOCAL = 6


def guarded(assembly: str) -> str:
    """The assembly with unused bytes behind each thread-local variable."""
    lines = []
    thread_local = False
    for line in assembly.splitlines():
        lines.append(line)
        if section := _SECTION.match(line):
            thread_local = (section[1] or "").startswith((".tbss", ".tdata"))
        elif thread_local and _ZERO.match(line):
            lines.append(f"\t.zero\t{_GUARD_BYTES}")
    return "\n".join(lines) + "\n"


def places(library: bytes) -> list[tuple[int, int]]:
    """[begin, end) of each thread-local variable of an ELF64 library, as offsets into its thread-local segment."""
    section_offset = struct.unpack_from("<Q", library, 0x28)[0]
    entry_size, count = struct.unpack_from("<HH", library, 0x3A)
    found = []
    for i in range(count):
        header = struct.unpack_from("<IIQQQQIIQQ", library, section_offset + i * entry_size)
        if header[1] != _SYMBOL_TABLE:
            continue
        offset, size, symbol_size = header[4], header[5], header[9]
        for at in range(offset, offset + size, symbol_size):
            _, kind, _, section, value, length = struct.unpack_from("<IBBHQQ", library, at)
            if kind & 15 == _THREAD_LOCAL and section and length:
                found.append((value, value + length))
    return sorted(found)
