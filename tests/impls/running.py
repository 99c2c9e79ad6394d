"""Running facts: functions of (backend, device) that raise where a backend breaks the contract."""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]


def facts_of(module):
    """The facts of a module, from its `globals()`: every public function that it defines, by name."""
    return {
        name: value
        for name, value in module.items()
        if callable(value) and getattr(value, "__module__", "") == module["__name__"] and not name.startswith("_")
    }


def print_report(facts, backend, device):
    """Runs every fact, and prints as JSON which ran, and the tracebacks of those that failed."""
    failures = {}
    for name, fact in facts.items():
        try:
            fact(backend, device)
        except Exception:
            failures[name] = traceback.format_exc()
    print(json.dumps({"ran": list(facts), "failures": failures}))


def run_python(*arguments, **environment):
    """Runs Python in a process of its own, with the repository importable; returns its standard output."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, **environment}
    result = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout
