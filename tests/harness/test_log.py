"""harness.log: one JSON object a line, on disk as it happens."""

# ruff: noqa: SIM300 - the expected value stands first

import json

from harness.log import PROGRESS_EVERY, EventLog


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_an_event_is_a_line_at_once(tmp_path):
    """A reader sees it while the campaign still runs, whatever is in it."""
    path = tmp_path / "deep" / "log.jsonl"
    event = {"event": "warning", "text": "two\nlines, “quotes” and \x00"}
    with EventLog(path) as log:
        log.write(event)
        assert [event] == lines(path)
        log.write({"event": "summary"})
        assert 2 == len(lines(path))


def test_a_log_goes_on_where_it_was(tmp_path):
    """A second campaign appends."""
    for number in range(2):
        with EventLog(tmp_path / "log.jsonl") as log:
            log.write({"event": "start", "seed": number})
    assert [0, 1] == [event["seed"] for event in lines(tmp_path / "log.jsonl")]


def test_without_a_path_nothing_is_written(tmp_path, monkeypatch):
    """And nothing breaks; events still pass."""
    monkeypatch.chdir(tmp_path)
    seen = []
    with EventLog(None) as log:
        log.write({"event": "start"})
        log.tee(seen.append)({"event": "finding"})
    assert ([{"event": "finding"}], []) == (seen, list(tmp_path.iterdir()))


def test_progress_is_logged_now_and_then(tmp_path):
    """By the campaign's own clock; everything else always, and everything is passed on."""
    seen = []
    times = [0.0, 0.5, PROGRESS_EVERY - 0.1, PROGRESS_EVERY, PROGRESS_EVERY + 1, 3 * PROGRESS_EVERY]
    with EventLog(tmp_path / "log.jsonl") as log:
        emit = log.tee(seen.append)
        for seconds in times:
            emit({"event": "progress", "seconds": seconds})
            emit({"event": "finding"})
    logged = lines(tmp_path / "log.jsonl")
    assert [0.0, PROGRESS_EVERY, 3 * PROGRESS_EVERY] == [e["seconds"] for e in logged if e["event"] == "progress"]
    assert len(times) == len([event for event in logged if event["event"] == "finding"])
    assert 2 * len(times) == len(seen)
