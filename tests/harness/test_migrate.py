"""harness.migrate: entries of older formats read as if they were of today's."""

# ruff: noqa: SIM300 - the expected value stands first

import json
from pathlib import Path

import pytest

from harness import corpus, migrate
from harness.case import FORMAT, CaseError, Fill

OLD = Path(__file__).parent / "data" / "format_1.json"
"""As `warpcheck fuzz` wrote it."""


def changed(tmp_path, **more):
    path = tmp_path / "entry.json"
    path.write_text(json.dumps(json.loads(OLD.read_text()) | more))
    return path


def test_a_file_of_format_1_reads_as_one_of_today():
    """Every field as it was, and today's number."""
    old = json.loads(OLD.read_text())
    assert 1 == old["format"]
    entry = corpus.read(OLD)
    assert FORMAT == entry.format == entry.subject.format
    assert old["note"] == entry.note
    assert old["environment"] == entry.environment
    assert old["signature"]["traits"] == list(entry.signature.traits)
    assert f"{entry.signature.slug}.json" == "wrong_set-float32-e909b568.json", "its name is still its signature's"
    for name, fill in old["subject"]["fills"].items():
        assert Fill(fill["kind"], fill.get("seed", 0), tuple(fill.get("values", ()))) == entry.subject.fills[name]


def test_a_migrated_entry_is_written_in_todays_format(tmp_path):
    """And reads back equal."""
    entry = corpus.read(OLD)
    path = corpus.write(tmp_path, entry)
    assert FORMAT == json.loads(path.read_text())["format"]
    assert entry == corpus.read(path)


def test_a_number_that_a_person_wrote_inside_is_migrated_too(tmp_path):
    """Of the subject and of a context."""
    subject = json.loads(OLD.read_text())["subject"] | {"format": 1}
    entry = corpus.read(changed(tmp_path, subject=subject, context=[subject]))
    assert entry.subject == entry.context[0] == corpus.read(OLD).subject


@pytest.mark.parametrize("more", [{"subject": 3}, {"context": 3}, {"context": [3]}, {"subject": None}, {"colour": 1}])
def test_an_old_entry_is_validated_as_any(tmp_path, more):
    """Whatever a step finds."""
    with pytest.raises(CaseError, match=r"entry\.json: not an entry"):
        corpus.read(changed(tmp_path, **more))


def test_there_is_a_step_from_every_format_since_the_oldest():
    """So that none is lost on the way."""
    assert list(range(migrate.OLDEST, FORMAT)) == sorted(migrate.STEPS)
