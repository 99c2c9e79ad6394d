"""`warpcheck fuzz` from end to end: a kernel nobody has seen, interrupts, deaths, and what is left behind."""

# ruff: noqa: SIM300 - the expected value stands first

import json
import os
import signal

import msgspec
import pytest

from harness import corpus, journal
from tests.harness.endtoend import (
    Running,
    entries,
    events,
    fix,
    fuzz,
    told,
    user_folder,
    wait_until,
    warpcheck,
    warpcheck_process,
)
from tests.harness.making import NAME

BACKGROUND = (
    "fuzz", "--operator", NAME, "--device", "cpu", "--no-builds", "--seed", "5", "--log", "log.jsonl", "--timeout", "10m",
)  # fmt: skip


@pytest.fixture(scope="module")
def ties(tmp_path_factory):
    """One campaign on a kernel with one bug: (folder, what the command did)."""
    folder = user_folder(tmp_path_factory.mktemp("ties"))
    done = fuzz(folder, "drops_ties", "--examples", "100", "--seed", "5", "--log", "log.jsonl", run=warpcheck_process)
    return folder, done


def counts(path):
    """The state of the only target, as the summary in a log has it."""
    return next(iter(events(path)[-1]["targets"].values()))


def test_one_bug_is_one_finding(ties):
    """Exit status 1, one reduced entry that names the function, and the output says how to see it again."""
    folder, done = ties
    assert 1 == done.returncode, done.stderr
    (entry,) = entries(folder / "corpus")
    assert ("wrong_set", "mask.py:drops_ties", True, "open") == (
        entry.verdict.kind,
        entry.implementation,
        entry.reduced,
        entry.status,
    )
    (path,) = corpus.paths(folder / "corpus")
    assert f"warpcheck repro {path.relative_to(folder)}" in done.stdout
    assert str(entry.signature) in done.stdout


def test_the_entry_is_the_smallest_call(ties):
    """A tie needs two elements and a k of one."""
    (entry,) = entries(ties[0] / "corpus")
    assert ((1, 2), {"form": "new", "k": 1}, ("float32",)) == (
        entry.subject.tensors["logits"].shape,
        entry.subject.params,
        entry.signature.traits,
    )


def test_the_log_is_json_lines(ties):
    """start first, then the finding, unreduced and reduced, and the summary last; all of one seed."""
    lines = (ties[0] / "log.jsonl").read_text().splitlines()
    seen = [json.loads(line) for line in lines]
    assert ("start", "summary") == (seen[0]["event"], seen[-1]["event"])
    assert 5 == seen[0]["seed"]
    assert [f"{NAME}/mask.drops_ties"] == seen[0]["targets"]
    findings = [event for event in seen if event["event"] == "finding"]
    assert findings[0]["unreduced"]
    assert [seen[-1]["new"][0]] == [event["signature"] for event in findings if not event["unreduced"]]
    assert (False, 1) == (seen[-1]["interrupted"], len(seen[-1]["new"]))


def test_the_number_of_examples_is_the_number_of_cases_judged(ties):
    """Shrinking and confirming do not count."""
    assert 100 == counts(ties[0] / "log.jsonl")["cases"]
    assert 100 == told(ties[0] / "log.jsonl", "summary")[0]["cases"]


@pytest.mark.parametrize("number", [1, 401])
def test_any_number_of_examples(tmp_path, number):
    """One alone, and more than a turn has, with nothing found: exit status 0."""
    folder = user_folder(tmp_path)
    done = fuzz(folder, "good", "--examples", number, "--seed", "1", "--log", "log.jsonl", "--legal-only")
    assert (0, number) == (done.returncode, counts(folder / "log.jsonl")["cases"])
    assert "nothing new" in done.stdout
    assert [] == entries(folder / "corpus")
    assert [] == list((folder / "corpus" / journal.FOLDER).iterdir())


def test_the_same_seed_finds_the_same(ties, tmp_path):
    """In a folder that knows nothing: the same entries, byte for byte, and the same counts."""
    folder = user_folder(tmp_path)
    fuzz(folder, "drops_ties", "--examples", "100", "--seed", "5", "--log", "log.jsonl", run=warpcheck_process)
    (before,), (after,) = corpus.paths(ties[0] / "corpus"), corpus.paths(folder / "corpus")
    assert before.read_bytes() == after.read_bytes()
    same = ("new", "cases", "targets", "findings")
    one, other = (told(path / "log.jsonl", "summary")[0] for path in (ties[0], folder))
    assert {key: one[key] for key in same} == {key: other[key] for key in same}


def test_a_known_failure_is_counted_and_not_new(ties, tmp_path):
    """Another campaign on the same corpus: exit status 0, the failures are counted, the entry stays as it is."""
    folder = user_folder(tmp_path)
    (path,) = corpus.paths(ties[0] / "corpus")
    here = folder / path.relative_to(ties[0])
    here.parent.mkdir(parents=True)
    here.write_bytes(path.read_bytes())
    done = fuzz(folder, "drops_ties", "--examples", "100", "--seed", "6", "--log", "log.jsonl")
    assert 0 == done.returncode, done.stdout
    assert "1 known failures" in done.stdout
    assert "nothing new" in done.stdout
    assert counts(folder / "log.jsonl")["known"] > 0
    assert [here] == corpus.paths(folder / "corpus")
    assert path.read_bytes() == here.read_bytes()


def test_two_bugs_are_two_entries(tmp_path):
    """Neither hides the other; both come out reduced."""
    folder = user_folder(tmp_path)
    done = fuzz(folder, "two_bugs", "--examples", "150", "--seed", "2")
    assert 1 == done.returncode
    found = entries(folder / "corpus")
    assert {"wrong_metadata", "wrong_set"} == {entry.verdict.kind for entry in found}
    assert 2 == len(found)
    assert all(entry.reduced for entry in found)


BUILDING = """
def mask(logits, k, *, out=None):
    return logits


def unavailable(device):
    return "builds only"


def build(params, arch):
    if params["dtype"] != "float32":
        raise RuntimeError("error: no such type")
"""


def test_one_broken_build_is_one_entry(tmp_path):
    """Of all variants of what can only be built here, one compiler error is the plainest of them."""
    (tmp_path / "mask.py").write_text(BUILDING)
    chosen = ("--operator", NAME, "--impl", "mask.py:mask", "--device", "cpu", "--examples", "5", "--seed", "1")
    done = warpcheck(tmp_path, "fuzz", *chosen, "--log", "log.jsonl")
    assert 1 == done.returncode, done.stderr
    (entry,) = entries(tmp_path / "corpus")
    assert ("build_error", True) == (entry.verdict.kind, entry.reduced)
    assert ({"dtype": "float16", "k": "int"}, "sm_80") == (entry.subject.params, entry.subject.arch)
    assert [True, False] == [event["unreduced"] for event in told(tmp_path / "log.jsonl", "finding")]


def test_legal_only_draws_no_illegal_call(tmp_path):
    """A kernel that refuses nothing fails only on calls that the contract forbids."""
    folder = user_folder(tmp_path)
    legal = fuzz(folder, "accepts_anything", "--examples", "120", "--seed", "3", "--legal-only")
    every = fuzz(folder, "accepts_anything", "--examples", "40", "--seed", "3")
    assert (0, 1) == (legal.returncode, every.returncode), legal.stdout
    assert {"accepted_illegal"} == {entry.verdict.kind for entry in entries(folder / "corpus")}


@pytest.fixture(scope="module")
def killers(tmp_path_factory):
    """One campaign on a kernel that dies, one that hangs and one that is right: (folder, what the command did)."""
    folder = user_folder(tmp_path_factory.mktemp("killers"))
    chosen = [word for name in ("dies", "hangs", "good") for word in ("--impl", f"mask.py:{name}")]
    done = warpcheck_process(
        folder,
        *("fuzz", "--operator", NAME, *chosen, "--device", "cpu", "--no-builds", "--legal-only"),
        *("--examples", "12", "--seed", "4", "--timeout", "2s", "--log", "log.jsonl"),
    )
    return folder, done


def test_a_kernel_that_dies_and_one_that_hangs_are_found(killers):
    """Each is shrunk to what it takes and recorded with how it ended; the hang's log says where it was."""
    folder, done = killers
    assert 1 == done.returncode, done.stderr
    found = {entry.signature.implementation: entry for entry in entries(folder / "corpus")}
    assert {
        "mask.dies": ("process_died", True, "died of SIGSEGV", "float16"),
        "mask.hangs": ("hang", True, "did not come back in time", "bfloat16"),
    } == {
        name: (
            entry.verdict.kind,
            entry.reduced,
            entry.verdict.evidence.error,
            entry.subject.tensors["logits"].dtype,
        )
        for name, entry in found.items()
    }
    assert "in hangs" in found["mask.hangs"].verdict.evidence.log


def test_deaths_and_hangs_do_not_end_the_campaign(killers):
    """All cases are judged, and the third implementation has no failure from its neighbours."""
    summary = told(killers[0] / "log.jsonl", "summary")[0]
    assert 12 == summary["cases"]
    right = summary["targets"][f"{NAME}/mask.good"]
    assert right["passed"] > 0
    assert 0 == right["failed"]


def test_every_implementation_is_counted_on_every_case(killers):
    """Also on the case on which one listed before it fails."""
    targets = told(killers[0] / "log.jsonl", "summary")[0]["targets"]
    assert {12} == {state["cases"] for state in targets.values()}


def test_words_of_a_kernel_are_printed_as_they_are(tmp_path):
    """Brackets in an exception's text are no markup: nothing breaks, nothing is swallowed."""
    folder = user_folder(tmp_path)
    done = fuzz(folder, "speaks_markup", "--examples", "20", "--seed", "1", "--legal-only")
    assert "Traceback" not in done.stderr, done.stderr[-300:]
    assert (1, True) == (done.returncode, "no rows [/vocab] in [red]" in done.stdout)


# --- interrupted --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_what_was_found(tmp_path, jobs):
    """Exit status 1 for the finding there is, a summary that says it was interrupted, and no process is left."""
    folder = user_folder(tmp_path)
    impl = ("--impl", "mask.py:drops_ties", "--time", "2h", "--jobs", jobs)
    with Running(folder, *BACKGROUND, *impl) as running:
        log = folder / "log.jsonl"
        running.until(lambda: any(not event["unreduced"] for event in told(log, "finding")))
        running.interrupt()
        assert 1 == running.wait(), running.text()
        assert wait_until(lambda: not running.family())
        assert "interrupted" in running.text()
        assert "Traceback" not in running.text()
    assert any(entry.reduced for entry in entries(folder / "corpus"))
    assert events(log)[-1]["event"] == "summary"
    assert events(log)[-1]["interrupted"]
    assert [] == list((folder / "corpus" / journal.FOLDER).iterdir())


def interrupted_while_shrinking(folder, jobs=1):
    """Interrupt a campaign whose child is busy shrinking its first failure: (status, output)."""
    impl = ("--impl", "mask.py:ties_then_waits", "--time", "2h", "--jobs", jobs)
    with Running(folder, *BACKGROUND, *impl) as running:
        running.until(lambda: told(folder / "log.jsonl", "finding") and list(folder.glob("waits-*")))
        assert all(event["unreduced"] for event in told(folder / "log.jsonl", "finding"))
        running.interrupt()
        status = running.wait()
        assert wait_until(lambda: not running.family())
        return status, running.text()


def test_ctrl_c_while_a_failure_is_shrunk_leaves_it_as_it_was_found(tmp_path):
    """The entry is in the corpus, marked as not reduced."""
    folder = user_folder(tmp_path)
    _, text = interrupted_while_shrinking(folder)
    assert "interrupted" in text
    assert "Traceback" not in text
    assert [("wrong_set", False)] == [(entry.verdict.kind, entry.reduced) for entry in entries(folder / "corpus")]


def test_a_failure_that_was_not_shrunk_yet_is_a_finding_too(tmp_path):
    """Exit status 1 if there is a new finding, however large."""
    status, text = interrupted_while_shrinking(user_folder(tmp_path))
    assert (1, False) == (status, "nothing new" in text)


def the_one_that_waits(folder, running):
    """The process id of the child that spins inside the kernel."""
    running.until(lambda: any(path.read_text() == "here" for path in folder.glob("waits-*")))
    (path,) = folder.glob("waits-*")
    return int(path.name.removeprefix("waits-"))


def test_kill_9_of_the_campaign_leaves_the_case_under_test(tmp_path):
    """Its children go too, the corpus can be read, the journal names the case, and the next campaign judges it first."""
    folder = user_folder(tmp_path)
    log = folder / "log.jsonl"
    with Running(folder, *BACKGROUND, "--impl", "mask.py:blocks", "--time", "2h") as running:
        the_one_that_waits(folder, running)
        os.kill(running.process.pid, signal.SIGKILL)
        assert -signal.SIGKILL == running.wait()
        assert wait_until(lambda: not running.family())
    assert ["start"] == [event["event"] for event in events(log) if event["event"] != "progress"]
    assert [] == entries(folder / "corpus")
    ((path, record),) = journal.left_behind(folder / "corpus" / journal.FOLDER)
    assert ("mask.py:blocks",) == record.specs
    assert "k" in record.subject.tensors
    (folder / "go").touch()
    log.unlink()
    done = fuzz(folder, "blocks", "--examples", "5", "--seed", "1", "--log", "log.jsonl", WAITING_ROOM=str(folder))
    assert 0 == done.returncode, done.stderr
    seen = events(log)
    assert ["start", "resumed"] == [event["event"] for event in seen[:2]]
    assert path.name == seen[1]["journal"]
    assert json.loads(msgspec.json.encode(record.subject)) == seen[1]["case"]
    assert "judging first what an interrupted campaign left under test" in done.stdout
    assert [] == list((folder / "corpus" / journal.FOLDER).iterdir())


def test_a_case_that_was_left_behind_and_fails_is_a_finding(tmp_path):
    """The next campaign finds it before it draws anything."""
    folder = user_folder(tmp_path)
    with Running(folder, *BACKGROUND, "--impl", "mask.py:blocks", "--time", "2h") as running:
        the_one_that_waits(folder, running)
        os.kill(running.process.pid, signal.SIGKILL)
        running.wait()
    text = (folder / "mask.py").read_text()
    wrong = "    check(logits, k, out)\n    return write(out, logits, ~kept(logits, k))\n"
    (folder / "mask.py").write_text(text + f"\n\ndef blocks(logits, k, *, out=None):\n{wrong}")
    done = fuzz(folder, "blocks", "--examples", "1", "--seed", "1", "--log", "again.jsonl")
    assert 1 == done.returncode, done.stdout + done.stderr
    assert ["start", "resumed", "finding"] == [event["event"] for event in events(folder / "again.jsonl")[:3]]
    assert {"mask.blocks"} == {entry.signature.implementation for entry in entries(folder / "corpus")}


def test_kill_9_of_the_judging_child_is_a_verdict(tmp_path):
    """The campaign goes on: process_died, recorded with the signal, and the other cases are judged."""
    folder = user_folder(tmp_path)
    with Running(folder, *BACKGROUND, "--impl", "mask.py:blocks", "--examples", "30") as running:
        child = the_one_that_waits(folder, running)
        assert child != running.process.pid
        os.kill(child, signal.SIGKILL)
        assert wait_until(lambda: child not in running.family())  # gone before it can see the file and answer
        (folder / "go").touch()
        assert 1 == running.wait(), running.text()
    (entry,) = entries(folder / "corpus")
    assert ("process_died", "died of SIGKILL") == (entry.verdict.kind, entry.verdict.evidence.error)
    summary = told(folder / "log.jsonl", "summary")[0]
    assert (30, 1) == (summary["cases"], counts(folder / "log.jsonl")["failed"])
    assert summary["deaths"] >= 1


# --- mended -------------------------------------------------------------------------------------------------


def test_from_the_finding_to_the_fix(ties, tmp_path):
    """replay and repro follow the kernel: open and failing, then mended, then marked fixed, then broken again."""
    folder = user_folder(tmp_path)
    (path,) = corpus.paths(ties[0] / "corpus")
    here = folder / "corpus" / path.relative_to(ties[0] / "corpus")
    corpus.write(folder / "corpus", corpus.read(path))
    assert ["as expected wrong_set"] == outcomes(folder, 0)
    fix(folder)
    assert ["now passes pass"] == outcomes(folder, 0)
    here.write_bytes(here.read_bytes().replace(b'"format"', b'"status": "fixed",\n  "format"'))
    assert ["as expected pass"] == outcomes(folder, 0)
    user_folder(folder)
    assert ["fails wrong_set"] == outcomes(folder, 1)


def outcomes(folder, status):
    """What `warpcheck replay` says of each entry, without its path."""
    done = warpcheck(folder, "replay", "--device", "cpu")
    assert status == done.returncode, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[:-1]]
    return [" ".join(word for word in words if not word.endswith(".json")) for words in lines]
