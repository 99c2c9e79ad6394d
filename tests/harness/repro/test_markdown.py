"""harness.repro.markdown: the text of an issue holds what was found, nothing else, and is sound Markdown whatever it quotes."""

# ruff: noqa: SIM300 - the expected value stands first

import re

import pytest
from msgspec.structs import replace

from harness import repro
from harness.case import FORMAT, Build, Fill, View
from harness.corpus import Entry
from harness.explanation import Explanation, Varied
from harness.repro import markdown
from harness.signature import Signature
from harness.verdict import STAGE_OF, Element, Evidence, Verdict
from tests.harness.making import NAME, mask_case, prefill_case

ONES = Fill("cycle", 0, (1.0,))
TIED = mask_case(1, 2, fill=ONES, k=1)
WORST = Element("out", (0, 1), "-inf", "1.0")
WRONG = Verdict("wrong_set", "out[0, 1] is -inf, should be 1.0; 1 of 2 wrong", Evidence(WORST, 1, 2, "one element"))


def entry(case=TIED, verdict=WRONG, *, traits=("float32",), **more):
    found = Signature(case.operator, "mine.mask", verdict.kind, "", traits)
    return Entry(FORMAT, found, case, verdict, "./mine.py:mask", "cpu", **more)


def text_of(*args, **kwargs):
    return repro.issue(entry(*args, **kwargs), path="corpus/there/x.json")


def sections(text):
    """Heading -> what stands under it, code blocks taken out."""
    parts = re.split(r"^#+ (.*)$", without_code(text), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def without_code(text):
    """The text with every code block replaced, each ended by a fence as long as the one it began with."""
    return re.sub(r"^(`{3,})[^\n`]*\n.*?^\1$", "(code)", text, flags=re.M | re.S)


def rows(section):
    """The cells of a table's rows, head and all."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_an_issue_has_all_there_is_to_say():
    """From the title to the environment, the script in a code block."""
    text = text_of(environment={"torch": "2.13.0", "gpu": "H200"})
    assert text.startswith(f"# {NAME}/mine.mask: wrong elements are kept or masked (float32)\n")
    assert "`out[0, 1] is -inf, should be 1.0; 1 of 2 wrong`" in text
    assert "```python\nmask(logits, 1)\n```" in text
    found = sections(text)
    assert list(found)[1:] == ["Smallest trigger", "Expected and got", "Script", "What was ruled out", "Environment"]
    tensor = ["logits", "float32", "[1, 2]", "[2, 1]", "byte 0", "cycle [1.0]"]
    assert tensor == rows(found["Smallest trigger"])[2]
    assert ["out[0, 1]", "-inf", "1.0", "0.0"] == rows(found["Expected and got"])[2]
    assert "at least its row's k-th largest stays" in found["Expected and got"]
    assert [["device", "CPU"], ["gpu", "H200"], ["torch", "2.13.0"]] == rows(found["Environment"])[2:]
    assert repro.script(entry(environment={"torch": "2.13.0", "gpu": "H200"}), path="x.json") in text


def test_a_shared_allocation_is_told():
    """So is an offset."""
    case = replace(
        mask_case(1, 2, fill=ONES, form="out", k=1),
        storages=(24,),
        tensors={"logits": View(0, "float32", (1, 2), (2, 1)), "out": View(0, "float32", (1, 2), (2, 1), 12)},
    )
    told = rows(sections(text_of(case))["Smallest trigger"])
    assert ["byte 12, in one allocation with logits", "to be written"] == told[3][-2:]


@pytest.mark.parametrize("kind", [kind for kind in STAGE_OF if not kind.startswith("build")])
def test_every_kind_has_an_issue(kind):
    """And says no more of the judge's work than the judge did: of a race, a death or a hang, nothing is ruled out."""
    case = mask_case(
        1, 2, fill=ONES, form="out_is_logits", k=-1 if kind in ("accepted_illegal", "unclear_error") else 1
    )
    text = text_of(
        case, Verdict(kind, "words", Evidence(failed=1, runs=10) if kind == "nondeterministic" else Evidence())
    )
    assert markdown.SYMPTOMS[kind] in text
    silent = ("nondeterministic", "process_died", "hang", "device_error")
    assert (kind in silent) == ("What was ruled out" not in text)
    assert ("Uninitialised memory" in text) == (kind in ("wrong_nan", "wrong_inf", "wrong_set", "divergence"))
    assert ("How often" in text) == (kind == "nondeterministic")


def test_a_call_that_was_refused_too_late_rules_nothing_out():
    """It wrote before it raised; nothing else about it was looked at."""
    verdict = Verdict("wrote_outside", "refused the call (ValueError), but wrote outside its output")
    assert "What was ruled out" not in text_of(mask_case(1, 2, fill=ONES, k=-1), verdict)


LOG = "a | table\n```\n````python\n<b>bold</b> `tick` /home/somebody/kernels/mine.cu:7: error\n~~~\n@team fixes #12"


def test_a_log_with_backticks_and_bars_stays_a_log():
    """The fence is longer than any in it, and no folder is told."""
    verdict = Verdict("refused", "raised: `|` and ``", Evidence(error="x", log=LOG))
    text = text_of(verdict=verdict)
    assert "`````text\na | table" in text
    assert "mine.cu:7: error" in text
    assert "/home" not in text
    assert "bold" not in without_code(text)
    assert "``` raised: `|` and `` ```" in text


def test_cells_and_titles_are_no_markup():
    """A bar does not end a cell, nor does a name call a person."""
    environment = {"gpu": "A|B `c` *d* _e_ <f> @g #7", "a_b": "[1, 2](x)"}
    text = text_of(environment=environment, traits=("a|b", "<i>"))
    cells = rows(sections(text)["Environment"])[2:]
    assert ["a_b", r"[1, 2\](x)"] == cells[0]
    assert [r"A\|B \`c\` \*d\* \_e\_ \<f\> @<!-- -->g #<!-- -->7"] == cells[2][1:]
    assert r"a\|b, \<i\>" in text.splitlines()[0]


def test_what_has_no_script_says_why():
    """The rest of the issue is there."""
    text = text_of(replace(TIED, schedule=7))
    assert "None: the failure needs an order of threads" in sections(text)["Script"]
    assert "threads in the order of seed 7" in text


def test_large_calls_are_told_without_being_made():
    """Nothing of a case's size is allocated."""
    text = text_of(mask_case(1 << 10, 1 << 28, fill=ONES, k=1), replace(WRONG, evidence=Evidence()))
    assert "mask(logits, 1)" in text
    assert "None: more than" in text


def test_calls_before_are_counted():
    """They stand in the script."""
    assert "It fails only after 2 other calls" in text_of(context=(TIED, mask_case(3, 3, fill=ONES)))


def test_the_explanation_becomes_a_table():
    """What matters, as `warpcheck show` has it: rows with long lists cut, the rest in a line; without any, no heading."""
    varied = (
        Varied("k", "k >= 1 | k = 7 (of 3 tried)", ("1", "7"), ("0",), ("3: hang",)),
        Varied("vocab", "any vocab (of 40 tried)", tuple(map(str, range(40)))),
    )
    found = sections(text_of(explanation=Explanation(varied, judged=43)))["What matters"]
    assert ["parameter", "fails", "failing values", "passing values", "other failures"] == rows(found)[0]
    assert ["k", r"k \>= 1 \| k = 7 (of 3 tried)", "1, 7", "0", "3: hang"] == rows(found)[2]
    assert "Irrelevant: vocab (40 tried)." in found
    assert "43 variants judged on cpu, each with one parameter changed" in found
    assert "What matters" not in text_of()


def test_attention_says_which_bound():
    """In its own terms: what is computed, and where the bound is from."""
    verdict = Verdict(
        "divergence", "", Evidence(Element("out", (0, 0, 0), "1.0", "0.5", "0.001"), 1, 64, "one element")
    )
    case = prefill_case(1, 2, heads=(1, 1), causal=True, logits_soft_cap=2.0, use_fp16_qk_reduction=True)
    told = sections(text_of(case, verdict))["Expected and got"]
    assert r"cap \* tanh(score / cap), then the causal mask" in told
    assert "float16 sums of q.k" in told


def test_a_build_has_an_issue_too():
    """The variant, the compiler's words, and a script that compiles it."""
    build = Build(NAME, {"dtype": "float16"}, "sm_90a")
    text = text_of(build, Verdict("build_error", "nvrtc: error", Evidence(log="no operator | matches")), traits=())
    assert "build: dtype='float16', for sm_90a" in text
    assert "a supported variant does not compile" in text.splitlines()[0]
    assert "build({'dtype': 'float16'}, 'sm_90a')" in text
    assert "no operator | matches" in text
