# ruff: noqa: SIM300
"""The CUDA kernel on the CPU, every way through it: which way a row takes, that it comes out right, and that no check objects."""

import itertools
import os

import pytest
import torch

from impls.cuda_build.host import HostOptions, executing, unavailable
from impls.cuda_build.host.compiler import CHECKS
from impls.top_k_mask_logits import top_k_mask_logits, top_k_mask_logits_
from tests.impls.top_k_mask_logits.brute_force import DTYPES, bits, expected
from tests.impls.top_k_mask_logits.cuda_rows import CLUSTERS, in_small, marked, rows

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def batches(dtype, cluster):
    """(names, logits, k): the rows of one length together, so that a cluster takes rows that go different ways."""
    by_length = sorted(rows(dtype, cluster), key=lambda row: len(row[1]))
    for _, group in itertools.groupby(by_length, key=lambda row: len(row[1])):
        names, values, ks = zip(*group)
        yield names, torch.stack(values).to(dtype), torch.tensor(ks)


def in_memory(logits, offset, gap):
    """The rows in memory, `gap` elements apart, the first at an element of that offset; and all of the memory."""
    batch, n = logits.shape
    memory = torch.full((batch * (n + gap) + offset,), 7.0, dtype=logits.dtype)
    view = memory.as_strided((batch, n), (n + gap, 1), offset)
    bits(view).copy_(bits(logits))
    return view, memory


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_way_gives_the_right_answer(dtype, cluster):
    """In place and not, from any alignment to any other, with a k of either type for each row; nothing else is written."""
    wrong = []
    for which, (names, logits, k) in enumerate(batches(dtype, cluster)):
        want = expected(logits, k)
        for (source, gap), (target, other_gap) in (
            ((0, 0), (0, 0)),
            ((1, 0), (1, 0)),
            ((3, 2), (5, 4)),
            ((0, 7), (1, 0)),
        ):
            for in_place in (True, False):
                x, memory = in_memory(logits, source, gap)
                out, around = (x, memory) if in_place else in_memory(torch.zeros_like(logits), target, other_gap)
                with in_small(cluster):
                    top_k_mask_logits(x, k.to(torch.int32) if which % 2 else k, out=out, backend="cuda")
                wrong += [
                    (n, source, target, in_place) for n, a, b in zip(names, want, bits(out)) if not torch.equal(a, b)
                ]
                bits(out).copy_(bits(torch.full_like(out, 7.0)))
                assert bool((around == 7.0).all())
    assert [] == wrong


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    """Cluster size -> the name of a row -> the ways it takes, for float32 in place."""
    source = marked(tmp_path_factory.mktemp("marked"))
    found = {}
    for cluster in CLUSTERS:
        found[cluster] = {}
        for name, row, k in rows(torch.float32, cluster):
            with in_small(cluster, source):
                found[cluster][name] = written(
                    lambda row=row, k=k: top_k_mask_logits_(row[None].clone(), k, backend="cuda")
                )
    return found


def written(call):
    """What a call writes to the file descriptor 1, whoever has it; less than a pipe holds."""
    end, begin = os.pipe()
    kept = os.dup(1)
    os.dup2(begin, 1)
    try:
        call()
    finally:
        os.dup2(kept, 1)
        os.close(begin)
        os.close(kept)
    with open(end) as stream:
        return stream.read().strip(", ")


SELECTED = ("by warp, few, selected", "whole, by warp, few, all shown")
EQUAL = ("by warp, open, low, all", "whole, by warp, open, low, all")


@pytest.mark.parametrize(
    ("row", "ways_of_sizes"),
    [
        ("ordinary, small k", SELECTED),
        ("ordinary, k = 1", SELECTED),
        ("large ones outside of packs", SELECTED),
        ("ascending", SELECTED),
        ("descending", SELECTED),
        ("ten NaN, k at the step", SELECTED),
        ("all equal, small k", EQUAL),
        ("all -inf", EQUAL),
        ("all NaN", EQUAL),
        ("ten above many equal, k at the step", ("by warp, open, selected", "whole, by warp, open, selected")),
        ("all equal, large k", ("closed, high",)),
        ("two values, k within the upper", ("closed, high",)),
        ("two values, k at the step", ("closed, high",)),
        ("two values, k after the step", ("closed, low, all",)),
        ("two values, the lower -inf, k after the step", ("closed, low, all",)),
        ("two values and one element below, k after the step", ("closed, low, not all",)),
        ("three values, k after the first step", ("closed, low, not all",)),
        ("ten on a step, k within", ("closed, selected",)),
        ("ten on a step, k at its end", ("closed, selected",)),
        ("a third -inf, k = n - 1", ("closed, high",)),
        ("less than a pack", ("short, selected",)),
        ("k = 0", ("",)),
        ("k = n", ("",)),
        ("one element", ("",)),
    ],
)
def test_a_row_takes_its_way(ways, row, ways_of_sizes):
    """The bracket, and where the answer lies in it: in one or two blocks, and in more, whose slices are on the chip as a whole.
    k = 0 and k = n decide nothing."""
    few_blocks, many_blocks = ways_of_sizes[0], ways_of_sizes[-1]
    assert {cluster: few_blocks if cluster <= 2 else many_blocks for cluster in CLUSTERS} == {
        cluster: found[row] for cluster, found in ways.items()
    }


@pytest.mark.parametrize(
    ("cluster", "way"),
    [
        *((cluster, way) for cluster in CLUSTERS for way in (
            "closed, high", "closed, low, all", "closed, low, not all", "closed, selected", "short, selected",
        )),
        (1, "by warp, few, selected"),
        (1, "short, low, all"),
        (16, "short, no room"),
        (2, "by warp, few, all shown"),
        (2, "by warp, open, low, not all"),
        (4, "few, selected"),
        (4, "whole, few, selected"),
        (8, "whole, few, all shown"),
        (8, "whole, open, low, not all"),
        (8, "whole, by warp, few, missed below"),
        (1, "closed, missed above"),
        (8, "closed, missed below"),
        (1, "closed, no room"),
        (16, "open, no room"),
        (16, "closed, missed above"),
    ],
)  # fmt: skip
def test_the_rows_take_all_ways(ways, cluster, way):
    """Among all rows of a cluster size; which of them it is depends on what the sample happens to have."""
    assert way in ways[cluster].values(), sorted(set(ways[cluster].values()))


FEW = {
    "ordinary, small k", "ordinary, k = 75", "ordinary 3, large k", "ordinary, k = n - 1", "two values, k after the step",
    "ten NaN, k within", "longer than it may have candidates", "short", "large ones in many packs of one block",
}  # fmt: skip
"""Enough for large clusters, which take longer: one of each way that ends otherwise, and one with two rows a cluster."""


@pytest.mark.parametrize("cluster", [1, 2, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_every_check_and_order_passes(dtype, cluster):
    """No race, no access outside, nothing undefined, in the fixed order of threads and in others, in place too."""
    for seed, (names, logits, k) in enumerate(batches(dtype, cluster)):
        chosen = [i for i, name in enumerate(names) if name != "long" and (cluster < 16 or name in FEW)]
        if not chosen:
            continue
        logits, k = logits[chosen], k[chosen]
        want = expected(logits, k)
        for order in (None, 2 * seed, 2 * seed + 1)[: 3 if cluster < 16 else 2]:
            x, memory = in_memory(logits, 1, 2)
            regions = tuple((t.data_ptr(), t.nbytes) for t in (memory, k))
            with in_small(cluster), executing(HostOptions(seed=order, checks=frozenset(CHECKS), memory=regions)):
                top_k_mask_logits(x, k, out=x, backend="cuda")
            assert torch.equal(want, bits(x)), order
