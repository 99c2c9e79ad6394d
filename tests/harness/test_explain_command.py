"""warpcheck explain: what it prints and writes, and its exit statuses."""

# ruff: noqa: SIM300 - the expected value stands first

import xml.etree.ElementTree as ET

import pytest
from msgspec.structs import replace

from harness import corpus
from harness.case import Fill
from harness.explanation import Explanation
from tests.harness.endtoend import judged, user_folder, warpcheck
from tests.harness.making import mask_case
from tests.harness.test_png import decode

TIES = Fill("cycle", 0, (1.0, 3.0, 3.0, 3.0, 2.0))


@pytest.fixture
def folder(tmp_path):
    return user_folder(tmp_path / "user")


@pytest.fixture
def entry(folder):
    """(its file, itself) in the folder's corpus, marked by a person."""
    found = replace(judged(mask_case(fill=TIES), "drops_ties", folder), note="seen by hand")
    return corpus.write(folder / "corpus", found), found


def explain(folder, *args):
    return warpcheck(folder, "explain", "--device", "cpu", *args)


def test_an_entry_is_explained(folder, entry):
    """Table, worst elements, map; the pictures are files that can be read; the entry gets the table and nothing else."""
    path, before = entry
    done = explain(folder, path, "--judgements", 40, "--svg", "a.svg", "--png", "a.png")
    assert (0, "") == (done.returncode, done.stderr)
    for words in ("drops_ties wrong_set", "irrelevant: dtype", "worst elements", "rows: batch", "wrong, by no number"):
        assert words in done.stdout
    assert "svg" in ET.parse(folder / "a.svg").getroot().tag
    assert decode((folder / "a.png").read_bytes())[0] > 0
    after = corpus.read(path)
    assert after.explanation is not None
    assert before == replace(after, explanation=None)
    assert {"dtype", "out", "k", "batch", "vocab"} <= {each.parameter for each in after.explanation.varied}
    shown = warpcheck(folder, "show", path).stdout
    assert "irrelevant: dtype" in shown
    assert "variants judged on cpu" in shown


def test_no_write_leaves_the_file_alone(folder, entry):
    """Byte for byte."""
    path, _ = entry
    before = path.read_bytes()
    assert 0 == explain(folder, path, "--judgements", 3, "--no-write").returncode
    assert before == path.read_bytes()


def test_an_entry_that_passes(folder, entry):
    """Exit status 1, and it says so; nothing is written."""
    path, before = entry
    user_folder(folder, fixed=True)
    done = explain(folder, path)
    assert (1, "the failure does not show here: it passes") == (done.returncode, done.stderr.strip())
    assert before == corpus.read(path)


def test_an_entry_that_cannot_run_here(folder, entry):
    """Its implementation is gone: 125, as for `git bisect run`."""
    path, _ = entry
    (folder / "mask.py").unlink()
    done = explain(folder, path)
    assert (125, True) == (done.returncode, done.stderr.startswith("cannot run here: "))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere.json"], "No such file"),
        (["mask.py"], "not an entry"),
        (["ENTRY", "--svg", "no/such/a.svg"], "there is no folder 'no/such'"),
        (["ENTRY", "--judgements", "-1"], "--judgements"),
        (["ENTRY", "--device", "tpu"], "--device"),
    ],
)
def test_bad_input(folder, entry, args, words):
    """One line, exit status 2."""
    done = explain(folder, *(entry[0] if arg == "ENTRY" else arg for arg in args))
    assert 2 == done.returncode
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_neighbours_are_told(folder, entry):
    """With what tells them apart, from the corpus that is given."""
    path, found = entry
    other = replace(found, signature=replace(found.signature, implementation="other"))
    corpus.write(folder / "corpus", other)
    done = explain(folder, path, "--judgements", 0, "--no-write")
    assert "nearest entries" in done.stdout
    assert "The same failure in another implementation: perhaps the same slip in both" in done.stdout
    assert (
        "no other entry of top_k_mask_logits in empty"
        in explain(folder, path, "--judgements", 0, "--no-write", "--corpus", "empty").stdout
    )


def test_a_full_explanation_stays(folder, entry):
    """Where less was tried this time."""
    path, found = entry
    full = Explanation((), judged=170)
    assert corpus.explain(path, found.subject, full)
    done = explain(folder, path, "--judgements", 2)
    assert (0, True) == (done.returncode, "not written: the entry has an explanation" in done.stdout)
    assert full == corpus.read(path).explanation
