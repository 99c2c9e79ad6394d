"""The whole way of a captured call: imported, made small, explained, written up, kept. What ties the parts together."""

# ruff: noqa: SIM300 - the expected value stands first

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from harness import corpus, stored
from harness.explanation import Explanation, Varied
from harness.rate import measured
from tests.harness.endtoend import LONG, clean_environment, entries, judged, user_folder, warpcheck
from tests.harness.making import NAME, mask_case
from tests.harness.test_corpus import everything

KERNEL = """
from mask import good


def threes_and_sevens(logits, k, *, out=None):
    result = good(logits, k, out=out)
    return result.fill_(5.0) if (logits == 3).any() and (logits == 7).any() else result
"""

OLD = Explanation((Varied("pitch", "only pitch 200 (of 9 tried)", ("200",), ("199",)),), judged=9)


@dataclass
class Way:
    """folder: the user's. done: what each command printed. path, entry: what came of the call."""

    folder: Path
    done: dict
    path: Path
    entry: corpus.Entry

    @classmethod
    def of(cls, folder):
        """Take a captured call, too large to be spelled out, all the way."""
        logits = (torch.arange(2 * 300) % 11).float().view(2, 300)
        torch.save({"logits": logits, "params": {"k": 3}}, folder / "call.pt")
        (folder / "odd.py").write_text(KERNEL)
        kernel = ("--operator", NAME, "--impl", "odd.py:threes_and_sevens")
        done = {"import": warpcheck(folder, "import", "call.pt", *kernel, "--device", "cpu")}
        (path,) = corpus.paths(folder / "corpus")
        (_, values) = next(stored.all_of(corpus.read(path).subject))
        assert {path.name, stored.name_of(values)} == {each.name for each in path.parent.iterdir()}
        assert corpus.explain(path, corpus.read(path).subject, OLD)
        done["reduce"] = warpcheck(folder, "reduce", path, "--device", "cpu")
        (entry,) = entries(folder / "corpus")
        (path,) = corpus.paths(folder / "corpus")
        assert entry.explanation is None, "that of the larger call says nothing of the smaller one"
        done["explain"] = warpcheck(folder, "explain", path, "--judgements", 40, "--device", "cpu")
        done["show"] = warpcheck(folder, "show", path)
        done["repro"] = report(folder, path)
        return cls(folder, done, path, corpus.read(path))


def report(folder, path):
    return warpcheck(folder, "repro", path, "--script", "bug.py", "--markdown", "issue.md", "--device", "cpu")


@pytest.fixture(scope="module")
def way(tmp_path_factory):
    return Way.of(user_folder(tmp_path_factory.mktemp("user")))


def test_every_step_says_how_it_went(way):
    """A failure is 1, what was done 0; nothing on stderr but what there is to be seen."""
    assert {"import": 1, "reduce": 0, "explain": 0, "show": 0, "repro": 1} == {
        what: done.returncode for what, done in way.done.items()
    }
    assert {""} == {done.stderr for done in way.done.values()}


def test_values_of_a_file_become_a_few_numbers(way):
    """A three and a seven; the file of values went with the larger call."""
    subject = way.entry.subject
    assert ((1, 2), {3.0, 7.0}) == (subject.tensors["logits"].shape, {*subject.fills["logits"].values})
    assert [str(way.path.relative_to(way.folder / "corpus"))] == [str(p) for p in everything(way.folder / "corpus")]


def test_the_explanation_goes_into_entry_show_and_issue(way):
    """The same table in all of them."""
    found = way.entry.explanation
    assert found is not None
    (vocab,) = [each for each in found.varied if each.parameter == "vocab"]
    assert vocab.passes
    issue = (way.folder / "issue.md").read_text(encoding="utf-8")
    for text in (way.done["explain"].stdout, way.done["show"].stdout, issue.replace("\\", "")):
        assert vocab.statement in text
        assert found.coverage in text
        assert found.irrelevant in text
        assert "pitch 200" not in text


def test_the_script_in_the_issue_shows_the_bug(way):
    """On its own, without this project; the values stand in it."""
    script = (way.folder / "bug.py").read_text(encoding="utf-8")
    assert script in (way.folder / "issue.md").read_text(encoding="utf-8")
    assert "3.0, 7.0" in script or "7.0, 3.0" in script
    done = subprocess.run(
        [sys.executable, "bug.py"], cwd=way.folder, env=clean_environment(), capture_output=True, text=True,
        timeout=LONG, check=False,
    )  # fmt: skip
    assert (1, True) == (done.returncode, "BUG" in done.stdout), done.stderr


def test_the_corpus_is_in_order_and_can_be_merged(way):
    """Nothing to do; in another corpus it is the same entry, explanation included, and it counts."""
    assert (0, "1 entries") == ((done := warpcheck(way.folder, "corpus", "check")).returncode, done.stdout.strip())
    merged = warpcheck(way.folder, "corpus", "merge", "corpus", "--corpus", "all")
    assert (0, "1 added") == (merged.returncode, merged.stdout.splitlines()[-1])
    assert [way.entry] == entries(way.folder / "all")
    stats = warpcheck(way.folder, "corpus", "stats", "all")
    (row,) = [line.split() for line in stats.stdout.splitlines() if line.startswith(NAME)]
    assert (0, ["1", "1", "0", "0", "8", "B"]) == (stats.returncode, row[1:7])


def test_a_rate_is_the_same_wherever_it_is_told(tmp_path):
    """In `show`, in the issue, and as the number of runs that the script makes."""
    folder = user_folder(tmp_path)
    rate = measured(33, 100)
    found = replace(judged(mask_case(1, 1), "comes_and_goes", folder, pairs=4), rate=rate)
    path = corpus.write(folder / "corpus", found)
    assert f"rate       {rate}" in [line.rstrip() for line in warpcheck(folder, "show", path).stdout.splitlines()]
    assert 1 == report(folder, path).returncode
    issue, script = ((folder / name).read_text(encoding="utf-8") for name in ("issue.md", "bug.py"))
    assert f"It failed in {rate}." in issue.partition("## How often")[2]
    assert f"for run in range({rate.repeats}):" in script
    assert f"# It failed in {rate}." in script
