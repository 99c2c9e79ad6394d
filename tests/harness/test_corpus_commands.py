"""`warpcheck corpus check`, `merge`, `stats`: what they print, and that nothing a corpus holds can stop or mislead them."""

# ruff: noqa: SIM300 - the expected value stands first

import json
import os

import msgspec
import pytest
import torch
from msgspec.structs import replace

from harness import corpus, corpus_commands, gpus, sandbox, stored
from harness.case import FORMAT, Build, Fill
from harness.journal import Record
from harness.replay import Replayer
from harness.verdict import PASS, Evidence, Verdict
from tests.harness.endtoend import user_folder, warpcheck
from tests.harness.making import mask_case
from tests.harness.test_case import HOSTILE, edited
from tests.harness.test_cli import fails_clearly
from tests.harness.test_corpus import LARGE, SMALL, SPECIAL, VERDICT, entry, everything, sparing
from tests.harness.test_corpus_care import contents
from tests.harness.test_stored import SPOILT, case_of, made

TIES = mask_case(fill=Fill("cycle", 0, (1.0, 3.0, 3.0, 3.0, 2.0)))


def lines_of(done):
    """what -> the lines that say it; the rest under ""."""
    found = {}
    for line in done.stdout.splitlines():
        what = next((word for word in corpus_commands._STYLES if line.startswith(word)), "")
        found.setdefault(what, []).append(line)
    return found


def named(kind, case=TIES, *, kernel="good", **rest):
    """An entry whose signature has a kind of its own."""
    made = entry(case, replace(VERDICT, kind=kind), **rest)
    return replace(made, implementation=f"mask.py:{kernel}", note=kind)


@pytest.fixture
def folder(tmp_path):
    return user_folder(tmp_path / "user")


def test_check_judges_what_is_open_and_marks_what_passes(folder):
    """An open entry that fails is well; one that passes is told, and becomes a fixed one when asked; a fixed one is not
    judged; a kernel that cannot be loaded and an unknown operator are told."""
    paths = {
        kind: corpus.write(folder / "corpus", what)
        for kind, what in {
            "fails": named("wrong_set", kernel="drops_ties"),
            "passes": named("wrong_nan"),
            "fixed": named("wrong_inf", kernel="drops_ties", status="fixed"),
            "gone": replace(named("divergence"), implementation="gone.py:mask"),
            "other": replace(named("hang"), signature=replace(named("hang").signature, operator="softmax")),
        }.items()
    }
    before = contents(folder)
    done = warpcheck(folder, "corpus", "check")
    assert 1 == done.returncode, done.stderr
    found = lines_of(done)
    (passes,) = found["now passes"]
    assert paths["passes"].name in passes
    assert sorted([paths["gone"].name, paths["other"].name]) == sorted(
        line.split()[2].rpartition("/")[2] for line in found["no implementation"]
    )
    assert "no file 'gone.py'" in "".join(found["no implementation"])
    assert "unknown operator 'softmax'" in "".join(found["no implementation"])
    count, hint = found[""]
    assert "5 entries; 2 no implementation; 1 now passes" == count
    assert "warpcheck corpus check --mark-fixed corpus" in hint
    assert before == contents(folder)

    done = warpcheck(folder, "corpus", "check", "--mark-fixed")
    assert 1 == done.returncode
    assert paths["passes"].name in lines_of(done)["marked fixed"][0]
    changed = {name for name, text in contents(folder).items() if before.get(name) != text and name.endswith(".json")}
    assert {paths["passes"].relative_to(folder).as_posix()} == changed
    marked = corpus.read(paths["passes"])
    assert replace(named("wrong_nan"), status="fixed") == marked
    for kind in ("gone", "other"):
        paths[kind].unlink()
    done = warpcheck(folder, "corpus", "check", "--mark-fixed")
    assert (0, "3 entries") == (done.returncode, done.stdout.strip())


@pytest.fixture
def verdicts(monkeypatch):
    """Judging is a function of this module: which device, which entry -> a verdict."""
    judged = []

    class Engine:
        def inspect(self, operator, spec):
            if spec == "broken":
                raise sandbox.UnusableImplementation("cannot load it")

        def environment(self):
            return {"capability": "9.0"}

    def judge(self, one, **_):
        judged.append((self.device, one.signature.kind))
        return Verdict("skip", "no memory") if one.signature.kind == "hang" else PASS

    monkeypatch.setattr(Replayer, "engine", lambda *_: Engine())
    monkeypatch.setattr(Replayer, "judge", judge)
    return judged


@pytest.mark.parametrize("gpu", [False, True])
def test_an_entry_is_judged_where_it_was_found_alone(tmp_path, monkeypatch, verdicts, gpu):
    """On a GPU of the same sort, or on the CPU: that it passes anywhere else says nothing of the bug. A build is the same
    everywhere. What cannot be judged is counted with the reason."""
    monkeypatch.setattr(gpus, "visible", lambda: ["0"] if gpu else [])
    same, other = {"capability": "9.0"}, {"capability": "8.0"}
    build = entry(Build("top_k_mask_logits", {}, "sm_80"), Verdict("build_error", "m", Evidence(error="e")))
    written = {
        "cpu": named("wrong_set"),
        "same": replace(named("wrong_nan"), device="cuda", environment=same),
        "another": replace(named("wrong_inf"), device="cuda", environment=other),
        "build": replace(build, device="cuda", environment=other),
        "skip": named("hang"),
    }
    for one in written.values():
        corpus.write(tmp_path / "corpus", one)
    done = warpcheck(tmp_path, "corpus", "check", "--mark-fixed")
    assert {("cpu", "wrong_set"), ("cpu", "build_error"), ("cpu", "hang")} | (
        {("cuda", "wrong_nan")} if gpu else set()
    ) == set(verdicts)
    assert (3 if gpu else 2) == len(lines_of(done)["marked fixed"])
    assert f"{1 if gpu else 2} not judged here (found on another device)" in done.stdout
    assert "1 cannot be judged (no memory)" in done.stdout
    statuses = {found.signature.kind: found.status for _, found in corpus.entries(tmp_path / "corpus")}
    assert ("open", "fixed" if gpu else "open") == (statuses["wrong_inf"], statuses["wrong_nan"])
    assert 0 == done.returncode


def test_no_judge_only_looks(tmp_path, verdicts):
    """At files, and whether each kernel can be loaded."""
    corpus.write(tmp_path / "corpus", named("wrong_set"))
    corpus.write(tmp_path / "corpus", replace(named("wrong_nan"), implementation="broken"))
    done = warpcheck(tmp_path, "corpus", "check", "--no-judge")
    assert 1 == done.returncode
    assert [] == verdicts
    assert "cannot load it" in lines_of(done)["no implementation"][0]


def test_an_entry_that_changes_meanwhile_is_not_marked(tmp_path, monkeypatch, verdicts):
    """Another writer found a smaller case while this one was judged."""
    path = corpus.write(tmp_path / "corpus", named("wrong_set", LARGE))
    look = corpus_commands._Judging.look

    def slow(*args, **more):
        found = look(*args, **more)
        corpus.write(tmp_path / "corpus", named("wrong_set", SMALL))
        return found

    monkeypatch.setattr(corpus_commands._Judging, "look", slow)
    done = warpcheck(tmp_path, "corpus", "check", "--mark-fixed")
    assert (1, "open", SMALL) == (done.returncode, corpus.read(path).status, corpus.read(path).subject)
    assert "changed meanwhile" in done.stdout


def hostile_corpus(folder):
    """Everything that should not be in a corpus, and one entry that should. Returns the names of the bad files."""
    good = corpus.write(folder, entry())
    text = good.read_bytes()
    whole = json.loads(text)
    bad = {}
    for number, (name, changes) in enumerate(HOSTILE.items()):
        bad[f"hostile{number}"] = json.dumps(whole | {"subject": json.loads(edited(**changes))}).encode(), name
    bad["half"] = text[: len(text) // 2], "half"
    bad["empty"] = b"", "empty"
    bad["future"] = json.dumps(whole | {"format": FORMAT + 1, "colour": 1}).encode(), "future"
    bad["deep"] = b"[" * 1_000_000, "deep"
    bad["deep_params"] = text.replace(b'"form"', b'"x": ' + b"[" * 5000 + b"]" * 5000 + b', "form"'), "deep params"
    bad["name\nof two lines"] = b"{}", "name"
    for name, (content, _) in bad.items():
        (good.parent / f"{name}.json").write_bytes(content)
    (good.parent / "large.json").touch()
    os.truncate(good.parent / "large.json", 100 << 20)
    for number, (make, _) in enumerate(SPECIAL.values()):
        make(good.parent / f"special{number}.json")
    (good.parent / "folder.json").mkdir()
    return {path.name for path in good.parent.iterdir()} - {good.name}


def test_a_hostile_corpus_is_one_line_a_file(tmp_path, verdicts):
    """The entry that is in order is found among them; nothing large is allocated, nothing changed, no line is two."""
    bad = hostile_corpus(tmp_path / "corpus")
    before = everything(tmp_path)
    with sparing(8 << 20):
        done = warpcheck(tmp_path, "corpus", "check", "--no-judge")
    assert 2 == done.returncode
    assert "Traceback" not in done.stdout + done.stderr
    found = lines_of(done)
    assert {" ".join(name.split()) for name in bad} == {
        line.partition("mine/")[2].partition(".json")[0] + ".json" for line in found["unreadable"]
    }
    assert len(bad) == len(found["unreadable"])
    assert [f"1 entries; {len(bad)} unreadable"] == found[""]
    assert max(map(len, found["unreadable"])) < 400
    assert before == everything(tmp_path)


def test_the_other_commands_pass_by_what_is_hostile(tmp_path):
    """Each file one line and exit status 2; the entry is merged and counted; the source is as it was."""
    bad = hostile_corpus(tmp_path / "corpus")
    before = everything(tmp_path / "corpus")
    with sparing(8 << 20):
        done = warpcheck(tmp_path, "corpus", "merge", "corpus", "--corpus", "all")
    assert (2, len(bad), 1) == (done.returncode, len(lines_of(done)["unreadable"]), len(lines_of(done)["added"]))
    assert 1 == len(everything(tmp_path / "all"))
    done = warpcheck(tmp_path, "corpus", "stats")
    assert (2, len(bad)) == (done.returncode, len(lines_of(done)["unreadable"]))
    assert f"1 entries, {len(bad)} files that cannot be read" == done.stdout.splitlines()[-1]
    done = warpcheck(tmp_path, "list")
    assert 0 == done.returncode
    assert before == everything(tmp_path / "corpus")


@pytest.mark.parametrize("what", SPOILT)
def test_an_entry_whose_values_are_spoilt_is_one_line(tmp_path, verdicts, what):
    """Checked, merged, replayed and shown."""
    path = corpus.write(tmp_path / "corpus", entry(case_of(made(shape=(20, 30)), tmp_path)))
    (file,) = path.parent.glob("*.bin")
    SPOILT[what][0](file)
    done = warpcheck(tmp_path, "corpus", "check")
    assert (2, 1) == (done.returncode, len(lines_of(done)["unreadable"]))
    done = warpcheck(tmp_path, "corpus", "merge", "corpus", "--corpus", "all")
    assert (2, []) == (done.returncode, everything(tmp_path / "all") if (tmp_path / "all").exists() else [])
    assert 2 == warpcheck(tmp_path, "replay", "--device", "cpu").returncode
    fails_clearly(warpcheck(tmp_path, "show", path), path.name, SPOILT[what][1])


def test_a_corpus_of_a_killed_run(tmp_path, verdicts):
    """Half a temporary file, a journal that names what ran, values without their entry: each is told, none is touched."""
    path = corpus.write(tmp_path / "corpus", entry())
    (path.parent / ".k3j2h1_x.tmp").write_bytes(path.read_bytes()[:100])
    (tmp_path / "corpus" / ".journal").mkdir()
    record = msgspec.json.encode(Record(LARGE, ("torch",), "cpu"))
    (tmp_path / "corpus" / ".journal" / "0-abc.json").write_bytes(record)
    stored.put(torch.ones(3), path.parent)
    before = everything(tmp_path)
    done = warpcheck(tmp_path, "corpus", "check", "--no-judge")
    assert 1 == done.returncode
    found = lines_of(done)
    assert (2, 1) == (len(found["left behind"]), len(found["unused"]))
    assert "the next campaign on this corpus judges it first" in "".join(found["left behind"])
    assert before == everything(tmp_path)


def test_merge_says_what_became_of_each_entry(tmp_path):
    """Added, replaced, kept, from several folders in their order; a second time all are kept."""
    corpus.write(tmp_path / "a", named("wrong_set", LARGE))
    corpus.write(tmp_path / "b", named("wrong_set", SMALL))
    corpus.write(tmp_path / "b", named("wrong_nan", SMALL))
    done = warpcheck(tmp_path, "corpus", "merge", "a", "b", "--corpus", "all")
    assert 0 == done.returncode, done.stderr
    assert {"added": 2, "replaced": 1, "": 1} == {what: len(lines) for what, lines in lines_of(done).items()}
    assert done.stdout.splitlines()[0].split()[1].startswith("a/")
    before = contents(tmp_path)
    done = warpcheck(tmp_path, "corpus", "merge", "a", "b", "--corpus", "all")
    assert (0, "3 kept") == (done.returncode, done.stdout.splitlines()[-1])
    assert before == contents(tmp_path)


BAD = {
    "no folder to check": (["check", "nowhere"], ("nowhere: no such folder",)),
    "a file to check": (["check", "file"], ("file: no such folder",)),
    "no folder to merge": (["merge", "corpus", "nowhere", "--corpus", "all"], ("nowhere: no such folder",)),
    "nothing to merge": (["merge"], ("Missing argument 'FOLDER...'",)),
    "itself": (["merge", "corpus"], ("corpus and corpus are one corpus",)),
    "itself by another name": (["merge", "link", "--corpus", "corpus"], ("are one corpus",)),
    "around": (["merge", "."], ("one is inside the other",)),
    "inside": (["merge", "corpus/top_k_mask_logits"], ("one is inside the other",)),
    "into a file": (["merge", "corpus", "--corpus", "file"], ("file",)),
    "below a file": (["merge", "corpus", "--corpus", "file/all"], ("file/all",)),
    "no folder to count": (["stats", "nowhere"], ("nowhere: no such folder",)),
    "contrary": (["check", "--no-judge", "--mark-fixed"], ("leave out --no-judge",)),
    "no command": (["mend"], ("No such command 'mend'",)),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line(tmp_path, what):
    """Before anything is merged or judged."""
    corpus.write(tmp_path / "corpus", entry())
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("corpus")
    before = everything(tmp_path)
    args, words = BAD[what]
    fails_clearly(warpcheck(tmp_path, "corpus", *args), *words)
    assert before == everything(tmp_path)


def test_stats_counts(tmp_path):
    """By implementation and kind; a size in the unit that fits it; nothing of nothing."""
    corpus.write(tmp_path / "corpus", named("wrong_set", LARGE))
    corpus.write(tmp_path / "corpus", named("wrong_nan", SMALL, reduced=False))
    corpus.write(tmp_path / "corpus", named("hang", case_of(made(shape=(20, 30)), tmp_path), status="fixed"))
    done = warpcheck(tmp_path, "corpus", "stats")
    assert 0 == done.returncode
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "top_k_mask_logits/mine 3 2 1 1 2.34 KiB 11.7 KiB 2.34 KiB" in rows
    assert "wrong_nan 1 1 0 1 8 B 8 B –" in rows
    (tmp_path / "empty").mkdir()
    assert "0 entries" == warpcheck(tmp_path, "corpus", "stats", "empty").stdout.strip()


def test_sizes_are_read_by_people():
    """Three digits and a unit."""
    sizes = (0, 1, 1023, 1024, 1536, 5 << 20, 1 << 40, 1 << 50)
    expected = ["0 B", "1 B", "1023 B", "1.00 KiB", "1.50 KiB", "5.00 MiB", "1.00 TiB", "1024 TiB"]
    assert expected == [corpus_commands._bytes(size) for size in sizes]


@pytest.mark.parametrize("command", [[], ["check"], ["merge"], ["stats"]])
def test_help(tmp_path, command):
    """Every command explains itself."""
    done = warpcheck(tmp_path, "corpus", *command, "--help")
    assert 0 == done.returncode
    assert "Usage: warpcheck corpus" in done.stdout
