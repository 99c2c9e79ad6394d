"""The fixed pieces of a script."""

from __future__ import annotations

import re

from harness.case import Build

VARIABLES = frozenset(
    {
        "device", "problems", "got", "want", "bound", "wrong", "index", "quota", "stay", "changed", "memories",
        "before", "number", "old", "new", "places", "where", "result", "outputs", "held", "address", "attempt",
        "run", "first", "other", "more", "memory", "values", "nan", "inf", "or_nan", "or_inf", "or_minus_inf",
        "or_finite", "mix", "words", "prod", "torch", "sys", "os", "versions", "child", "execution", "Poisoned",
        "GUARD", "error", "suppress", "which",
    }
)  # fmt: skip
"""Names that a script uses itself."""

HANG = 60
"""Seconds after which a call counts as one that hangs."""


def device(found_on: str) -> str:
    """Where the script runs: as the bug was found, on the CPU or on a GPU, or on whatever is there."""
    if found_on == "cuda":
        return 'device = "cuda" if torch.cuda.is_available() else "cpu"  # it was found on "cuda"'
    return (
        'device = "cuda" if torch.cuda.is_available() else "cpu"\n'
        'if device == "cpu":\n    os.environ["TRITON_INTERPRET"] = "1"  # it was found under Triton\'s interpreter'
    )


_VERSIONS = """
versions = [f"{name} {sys.modules[name].__version__}" for name in ("torch", "triton") if name in sys.modules]
print(*versions, torch.cuda.get_device_name() if device == "cuda" else "CPU", sep=", ")
"""

ENVIRONMENT = {
    "cpu": _VERSIONS,
    "cuda": _VERSIONS
    + """if device == "cuda":
    smi = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    driver = subprocess.run(smi, capture_output=True, text=True).stdout.strip() if which("nvidia-smi") else "unknown"
    print(f"CUDA {torch.version.cuda}, driver {driver}")
""",
}
"""Prints what the result may depend on, by where the bug was found."""

END = """
if problems:
    print(f"BUG ({len(problems)} wrong):", *problems[:10], sep="\\n  ")
    sys.exit(1)
print("passes")
"""

STOP = [
    "    if problems:",
    '        print(f"BUG (run {run + 1}, {len(problems)} wrong):", *problems[:10], sep="\\n  ")',
    "        sys.exit(1)",
    'print("passes")',
]

CHILD = """
if "child" not in sys.argv:  # what follows runs in a process of its own, since it dies
    child = subprocess.run([sys.executable, __file__, "child"])
    if child.returncode not in (0, 1):
        print(f"BUG: the process ended with status {child.returncode}")
        sys.exit(1)
    sys.exit(child.returncode)
faulthandler.enable()
"""

WATCHDOG = f"""
faulthandler.dump_traceback_later({HANG}, exit=True)  # in a call that hangs: shows where, and exits 1
"""

POISONED = '''
class Poisoned(TorchFunctionMode):
    """Inside, memory from torch.empty and its kin is filled with a byte, in place of whatever it happens to hold."""

    def __init__(self, byte):
        super().__init__()
        self.byte = byte

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        allocators = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)
        if function in allocators and made.numel():
            memory = made.untyped_storage()
            made.new_empty(0, dtype=torch.uint8).set_(memory, 0, (memory.nbytes(),), (1,)).fill_(self.byte)
        return made
'''

_SYNCHRONISE = ['    if device == "cuda":', "        torch.cuda.synchronize()"]


def must_return(call: str) -> list[str]:
    """Statements that make a call which has to come back."""
    return [
        "try:",
        f"    {call}",
        *_SYNCHRONISE,
        "except Exception as error:",
        "    traceback.print_exc()",
        '    problems.append(f"raised {type(error).__name__} on a legal call: {error}")',
    ]


def must_raise(call: str) -> list[str]:
    """Statements that make a call which has to be refused."""
    return [
        "try:",
        f"    {call}",
        '    problems.append("the call was accepted")',
        "except (ValueError, TypeError) as error:",
        '    print(f"raised, as it should: {error!r}")',
        "except Exception as error:",
        '    problems.append(f"raised {error!r}, which is no ValueError or TypeError")',
    ]


def build(function: str, what: Build) -> list[str]:
    """Statements that compile one variant."""
    return [
        "try:",
        f"    {function}({what.params!r}, {what.arch!r})",
        "except Exception:",
        "    traceback.print_exc()",
        '    print("BUG: it does not compile")',
        "    sys.exit(1)",
        'print("passes")',
    ]


def module(sections: list[str]) -> str:
    """The code of a script: its imports, then the sections, with two empty lines around functions and classes."""
    text, before = "", ""
    for section in (part.strip("\n") for part in sections):
        apart = any(part.startswith(("def ", "class ")) for part in (before, section))
        text += ("\n\n\n" if apart else "\n\n" if text else "") + section
        before = section
    return f"{_imports(text)}\n{text}\n"


def _imports(code: str) -> str:
    """The import statements for what a script uses."""
    modules = ("faulthandler", "os", "runpy", "subprocess", "sys", "traceback")
    used = [f"import {name}" for name in modules if re.search(rf"(?<![\w.\"']){name}\.", code)]
    math = [
        name
        for name in ("inf", "nan", "prod")
        if re.search(rf"(?<![\w.\"'-]){name}\b(?!\")|-{name}\b(?!\")", _bare(code))
    ]
    used += ["from contextlib import suppress"] if "suppress(" in code else []
    used += [f"from math import {', '.join(math)}"] if math else []
    used += ["from shutil import which"] if "which(" in code else []
    torch = ["import torch"] if "torch." in code else []
    torch += ["from torch.overrides import TorchFunctionMode"] if "TorchFunctionMode" in code else []
    return "\n".join([*used, *([""] if used and torch else []), *torch]) + "\n"


def _bare(code: str) -> str:
    """Without comments and strings (roughly), in which names do not count."""
    return re.sub(r'"""[^"]*"""|"[^"\n]*"|#[^\n]*', "", code)
