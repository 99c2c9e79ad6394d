"""harness.ledger: what counts as known."""

# ruff: noqa: SIM300 - the expected value stands first

from msgspec.structs import replace

from harness import corpus
from harness.ledger import Ledger
from harness.signature import bucket
from tests.harness.making import mask_case
from tests.harness.test_corpus import LARGE, SMALL, VERDICT, entry

HALF = mask_case(1, 2, dtype="float16")


def where(case):
    return bucket(case, "mine", VERDICT)


def test_open_entries_are_known(tmp_path):
    """Their buckets belong to their signatures, and are not new."""
    corpus.write(tmp_path, entry())
    ledger = Ledger(tmp_path)
    assert entry().signature == ledger.owner[where(LARGE)]
    assert where(HALF) not in ledger.owner
    assert [] == ledger.new


def test_fixed_and_unreduced_entries_are_not_known(tmp_path):
    """A fixed bug that is back is news; an unreduced one has yet to be told apart."""
    corpus.write(tmp_path, entry(status="fixed"))
    corpus.write(tmp_path, entry(HALF, reduced=False))
    assert {} == Ledger(tmp_path).owner


def test_an_unreadable_file_does_not_matter(tmp_path):
    """And neither does an empty corpus."""
    path = corpus.write(tmp_path, entry())
    (path.parent / "bad.json").write_text("{")
    assert 1 == len(Ledger(tmp_path).owner)
    assert {} == Ledger(tmp_path / "none").owner


def test_what_others_find_is_learned_on_refresh(tmp_path):
    """Another worker's entry is known afterwards, and is none of this one's findings."""
    ledger = Ledger(tmp_path)
    corpus.write(tmp_path, entry())
    assert where(SMALL) not in ledger.owner
    ledger.refresh()
    assert entry().signature == ledger.owner[where(SMALL)]
    assert [] == ledger.new


def test_an_entry_that_another_worker_reduced_meanwhile_is_learned(tmp_path):
    """First seen unreduced, then reduced under the same name: known after the next refresh."""
    corpus.write(tmp_path, entry(reduced=False))
    ledger = Ledger(tmp_path)
    assert where(SMALL) not in ledger.owner
    corpus.write(tmp_path, entry())
    ledger.refresh()
    assert where(SMALL) in ledger.owner


def test_an_unreadable_file_that_became_an_entry_is_learned(tmp_path):
    """A file is not given up for having been bad once."""
    path = corpus.path_of(tmp_path, entry().signature)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    ledger = Ledger(tmp_path)
    corpus.write(tmp_path, entry())
    ledger.refresh()
    assert where(SMALL) in ledger.owner


def test_a_new_finding_is_new_once(tmp_path):
    """It is on disk, in `new`, and known from then on."""
    ledger = Ledger(tmp_path)
    assert ledger.add(entry(LARGE))
    assert not ledger.add(entry(LARGE))
    assert [entry().signature] == ledger.new
    assert entry(LARGE) == corpus.read(corpus.path_of(tmp_path, entry().signature))
    assert entry().signature == ledger.owner[where(SMALL)]


def test_a_finding_takes_the_place_of_its_unreduced_self(tmp_path):
    """One file, reduced."""
    corpus.write(tmp_path, entry(reduced=False))
    ledger = Ledger(tmp_path)
    assert ledger.add(entry())
    assert corpus.read(corpus.path_of(tmp_path, entry().signature)).reduced


def test_a_smaller_case_of_a_known_signature_is_kept_but_not_new(tmp_path):
    """The corpus gets better, the campaign stays green."""
    corpus.write(tmp_path, entry(LARGE))
    ledger = Ledger(tmp_path)
    assert not ledger.add(entry(SMALL))
    assert SMALL == corpus.read(corpus.path_of(tmp_path, entry().signature)).subject


def test_a_finding_that_another_worker_made_smaller_meanwhile_stays_small(tmp_path):
    """Two workers, one signature, the larger case last."""
    ledger = Ledger(tmp_path)
    corpus.write(tmp_path, entry(SMALL))
    ledger.add(entry(LARGE))
    assert SMALL == corpus.read(corpus.path_of(tmp_path, entry().signature)).subject


def test_what_another_worker_found_first_is_not_new(tmp_path):
    """Though this one never refreshed in between."""
    ledger = Ledger(tmp_path)
    corpus.write(tmp_path, entry(LARGE))
    assert not ledger.add(entry(SMALL))
    assert [] == ledger.new


def test_a_fixed_bug_that_is_back_is_new(tmp_path):
    """And open again."""
    corpus.write(tmp_path, entry(status="fixed", note="by a person"))
    assert Ledger(tmp_path).add(entry())
    assert entry(note="by a person") == corpus.read(corpus.path_of(tmp_path, entry().signature))


def test_a_finding_can_be_withdrawn(tmp_path):
    """Its file goes, its bucket is the other's."""
    other = entry(HALF)
    ledger = Ledger(tmp_path)
    ledger.add(entry())
    ledger.add(other)
    ledger.withdraw(entry().signature, other.signature)
    assert [other.signature] == ledger.new
    assert other.signature == ledger.owner[where(SMALL)]
    assert [corpus.path_of(tmp_path, other.signature)] == corpus.paths(tmp_path)


def test_two_implementations_do_not_share_what_is_known(tmp_path):
    """The same failure of another implementation is news."""
    corpus.write(tmp_path, entry())
    ledger = Ledger(tmp_path)
    other = replace(entry(), signature=replace(entry().signature, implementation="theirs"))
    assert bucket(SMALL, "theirs", VERDICT) not in ledger.owner
    assert ledger.add(other)
