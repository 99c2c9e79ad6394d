"""A user's own test in three lines:

from harness import kernel_property
from my_kernels import mask
test_mask = kernel_property("top_k_mask_logits", mask)
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


class KernelFailure(AssertionError):
    """A property test's failure: the signature, the evidence, and where the minimal case is."""


def kernel_property(
    operator: str,
    kernel: str | Callable[..., Any],
    *,
    device: str = "auto",
    examples: int | None = None,
    seconds: float | None = None,
    illegal: bool = True,
    seed: int | None = None,
    corpus: str | os.PathLike[str] | None = None,
    profile: str | None = None,
) -> Callable[[], None]:
    """A test function for pytest: reject or correct, on drawn calls.

    operator: `warpcheck list` names them. kernel: a function at the top level of a file or module, or its spec
    ("file.py:function", or the name of an implementation that is built in).
    device: "cpu", "cuda", or "auto" for a GPU if there is one. examples: cases drawn (default: the profile's, 200 for
    "dev"); seconds: a limit of time instead. illegal: draw calls that the contract forbids as well.
    seed: repeat one drawing; by default every run draws anew. corpus: a folder for the minimal case of each failure, whose
    open entries count as known; by default a new temporary one, so that nothing is known.
    profile: "dev", "pr" or "nightly" (default: the environment's WARPCHECK_PROFILE, or "dev").

    The test raises KernelFailure for the failures found. Raises ValueError here for an unknown operator and
    UnknownImplementation for a function that another process could not find.
    """
    from harness import operators
    from harness.implementations import spec_of

    operators.get(operator)
    spec = kernel if isinstance(kernel, str) else spec_of(kernel)

    def test() -> None:
        check(
            operator,
            spec,
            device=device,
            examples=examples,
            seconds=seconds,
            illegal=illegal,
            seed=seed,
            corpus=None if corpus is None else Path(corpus),
            profile=profile,
        )

    test.__doc__ = f"{spec} is right or refuses, on every drawn call of {operator}."
    return test


def check(
    operator: str,
    spec: str,
    *,
    device: str,
    examples: int | None,
    seconds: float | None,
    illegal: bool,
    seed: int | None,
    corpus: Path | None,
    profile: str | None,
) -> None:
    """Run a campaign over one target. Raises KernelFailure for what it finds, pytest's Skipped where nothing can run."""
    import pytest

    from harness import gpus
    from harness.events import Event
    from harness.fuzz import Campaign, Config
    from harness.profiles import EXAMPLES

    profile = profile or os.environ.get("WARPCHECK_PROFILE", "dev")
    if examples is None and seconds is None:
        examples = EXAMPLES[profile]
    events: list[Event] = []
    with contextlib.ExitStack() as stack:
        folder = corpus or Path(stack.enter_context(_kept_on_failure()))
        config = Config(
            (operator,),
            {operator: (spec,)},
            gpus.resolve(device),
            seconds=seconds,
            cases=examples,
            profile=profile,
            corpus=folder,
            seed=int.from_bytes(os.urandom(4), "big") if seed is None else seed,
            illegal=illegal,
            builds=False,
        )
        Campaign(config, events.append).run()
        withdrawn = {event["signature"] for event in events if event["event"] == "withdrawn"}
        settled = [event for event in events if event["event"] == "finding" and not event["unreduced"]]
        findings = [event for event in settled if event["signature"] not in withdrawn]
        if findings:
            raise KernelFailure("\n".join(_tell(finding, config.seed) for finding in findings))
    state = next(iter(events[-1]["targets"].values()))
    if state["idle"]:
        pytest.skip(state["idle"])
    if state["skipped"] and not state["passed"] and not state["failed"]:
        pytest.skip(f"every drawn call was skipped: {state['why_skipped']}")


def _tell(finding: dict[str, Any], seed: int) -> str:
    return f"{finding['signature']}: {finding['message']} (seed {seed})\n    warpcheck repro {finding['file']}"


@contextlib.contextmanager
def _kept_on_failure() -> Any:
    """A temporary folder that goes when all went well, and stays when the block raises."""
    folder = tempfile.mkdtemp(prefix="warpcheck-")
    yield folder
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
