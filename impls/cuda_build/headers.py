"""Which headers a source includes: the project's by content, CUDA's by version and place."""

import functools
import os
import re
import shutil
from importlib import metadata
from pathlib import Path

SHARED = Path(__file__).parent
"""The folder of the .cuh files that several operators share; always on the include path."""

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


def project_headers(source: Path) -> tuple[dict[str, bytes], bool]:
    """The project headers that `source` includes, directly or not, and whether it also includes any other header.

    Returns ({name as written: content}, others). Conditional compilation is not evaluated, so the result may name headers that
    one configuration skips: a cache key made from it is never too weak. Headers named through a macro are not seen; don't
    write those.
    """
    found: dict[str, bytes] = {}
    others = False
    pending = [(source, source.read_bytes())]
    while pending:
        path, text = pending.pop()
        for match in _INCLUDE.finditer(text):
            name = match[1].decode()
            header = next((d / name for d in (path.parent, source.parent, SHARED) if (d / name).is_file()), None)
            if header is None:
                others = True
            elif name not in found:
                found[name] = header.read_bytes()
                pending.append((header, found[name]))
    return found, others


@functools.cache
def cuda_include_directory() -> Path | None:
    """The folder with cuda_fp16.h and all that it includes, or None.

    It comes from the wheels nvidia-cuda-runtime and nvidia-cuda-crt, or from a toolkit. Some environments have the first
    wheel without the second: cuda_fp16.h is there but the crt/ folder that it includes is not, so both are looked for.
    """
    for folder in _candidates():
        if (folder / "cuda_fp16.h").is_file() and (folder / "crt" / "host_defines.h").is_file():
            return folder
    return None


def _candidates() -> list[Path]:
    from cuda import pathfinder

    folders = []
    if found := pathfinder.find_nvidia_header_directory("cudart"):
        folders.append(Path(found))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            folders.append(Path(root) / "include")
    if nvcc := shutil.which("nvcc"):
        # The command is often a link, and a toolkit's headers lie beside the file it points to.
        folders += [Path(nvcc).resolve().parent.parent / "include", Path(nvcc).parent.parent / "include"]
    return folders


@functools.cache
def cuda_header_version() -> str:
    """The version of the headers in `cuda_include_directory()`: the wheels' for wheels, CUDART_VERSION otherwise."""
    folder = cuda_include_directory()
    if folder is None:
        return "none"
    text = (folder / "cuda_runtime_api.h").read_text(errors="replace")
    macro = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    versions = [macro[1] if macro else "unknown"]
    if "site-packages" in folder.parts or "dist-packages" in folder.parts:
        for wheel in ("nvidia-cuda-runtime", "nvidia-cuda-crt"):
            try:
                versions.append(metadata.version(wheel))
            except metadata.PackageNotFoundError:
                versions.append("none")
    return "+".join(versions)
