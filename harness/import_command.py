"""The command `warpcheck import`."""

from __future__ import annotations

import dataclasses
import re
import sys
import tempfile
from pathlib import Path

import click
from msgspec.structs import replace
from rich.markup import escape

from harness import captured, command, corpus, importing, operators, signature
from harness.case import FORMAT, Case, CaseError
from harness.command import CORPUS, DEVICE, FINDINGS, TIMEOUT, Telling, clear_errors, say
from harness.corpus import Entry
from harness.operators import Operator
from harness.sandbox import Engine, HarnessError, Limits, telling_line
from harness.signature import Signature
from harness.verdict import Verdict


@click.command(name="import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--operator", "name", required=True, help="What the call computes (`warpcheck list` names the operators)."
)
@click.option(
    "--impl",
    "spec",
    required=True,
    metavar="NAME|FILE.py:FUNCTION",
    help="The kernel that it is judged on: a name of `warpcheck list`, or a function of a file or module.",
)
@click.option(
    "--params",
    "params",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="A JSON object of the arguments that are no tensors. They win over those in FILE.",
)
@click.option("--keep", is_flag=True, help="Keep a call that passes too, as one that must pass (status fixed).")
@DEVICE
@CORPUS
@TIMEOUT
@clear_errors
def import_command(
    file: Path, name: str, spec: str, params: Path | None, keep: bool, device: str, folder: Path, timeout: float
) -> None:
    """Make an entry of a call that was captured elsewhere.

    FILE is what torch.save wrote of a dict of named tensors, or a safetensors file. Names are the operator's: logits, k and
    out; or q, k, v, out, alibi_slopes and custom_mask. In the program where the call goes wrong, before it is made:

    \b
    torch.save({"logits": logits, "out": out, "params": {"k": 50}}, "call.pt")
    torch.save({"q": q, "k": k, "v": v, "params": {"causal": True, "return_lse": True}}, "call.pt")

    \b
    warpcheck import call.pt --operator top_k_mask_logits --impl ./mine.py:mask
    warpcheck import call.safetensors --operator single_prefill --impl cuda --params call.json

    torch.save keeps strides, offsets and which tensors share memory, and so does the entry; a safetensors file has dense
    tensors alone (and its metadata may hold the parameters, as JSON under "params"). Every bit of the values is kept: up to
    512 of a tensor stand in the entry, more are put into a file beside it, of 256 MiB at most. How `out` is given is seen
    from the tensors; what cannot be seen is said: "params": {"form": "in_place"}.

    The file is read without executing anything of it. The call is judged in a process of its own, and if it fails, becomes
    an open entry, not reduced yet: `warpcheck reduce` makes it small. If it passes, nothing is written, unless --keep.

    Exit status: 0 it passes, 1 it fails, 2 the input is wrong, 125 it cannot run here.
    """
    operator = operators.get(name)
    where = command.device_of(device)
    call = captured.read(file)
    if params is not None:
        call = dataclasses.replace(call, params={**call.params, **captured.params_of(params)})
    with tempfile.TemporaryDirectory(prefix="warpcheck-") as values:
        try:
            case = importing.case_of(call, operator, Path(values))
            illegal = importing.why_illegal(case, call, operator)
        except CaseError as error:
            raise CaseError(f"{file}: {error}") from None
        entry = _judged(case, spec, where, Limits(run=timeout))
        if entry.verdict.kind == "skip":
            command.cannot_run(entry.verdict.message)
        _tell(entry.verdict, illegal, where)
        if entry.verdict.failed:
            _write(folder, entry)
            sys.exit(FINDINGS)
        if keep:
            _write(folder, _as_kept(entry, operator, file))
        else:
            say("nothing is written; --keep keeps it as a call that must pass")


def _judged(case: Case, spec: str, device: str, limits: Limits) -> Entry:
    """The entry of a call, with what judging it gives: in a process that has judged nothing."""
    with Telling("judging …"), Engine(device, limits=limits) as engine:
        about = engine.inspect(case.operator, spec)
        try:
            verdict = (
                Verdict("skip", about.cannot_run) if about.cannot_run is not None else engine.judge(case, [spec])[0]
            )
        except HarnessError as error:
            verdict = Verdict("skip", telling_line(error))
        found = signature.signature(case, about.name, verdict)
        return Entry(FORMAT, found, case, verdict, spec, device, reduced=False, environment=engine.environment())


def _tell(verdict: Verdict, illegal: str | None, device: str) -> None:
    if verdict.failed:
        say(f"[bold red]fails[/] on {device}: {verdict.kind}: {escape(verdict.message)}")
    elif illegal is not None:
        say(
            f"[green]passes[/] on {device}: the contract forbids the call ({escape(illegal)}), and it was refused clearly"
        )
    else:
        vacuous = ", but the bound is larger than the result: that proves nothing" if verdict.vacuous else ""
        say(f"[green]passes[/] on {device}{vacuous}")


def _as_kept(entry: Entry, operator: Operator, file: Path) -> Entry:
    """A call that must pass, under the name of its file: there is no failure to name it by."""
    stem = re.sub(r"\W+", "-", file.stem).strip("-")
    named = Signature(operator.NAME, entry.signature.implementation, "pass", f"call {stem}")
    return replace(entry, signature=named, status="fixed", reduced=True)


def _write(folder: Path, entry: Entry) -> None:
    path = corpus.write(folder, entry)
    if path is None:
        there = corpus.path_of(folder, entry.signature)
        say(f"known: {escape(str(there))} has its signature and stays")
        return
    say(f"wrote {escape(str(path))}")
    if entry.verdict.failed:
        say(f"make it small: warpcheck reduce {escape(str(path))}")
