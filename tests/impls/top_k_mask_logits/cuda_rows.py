"""Rows for the CUDA kernel, each made for one way through it, and the kernel in small: with room for little, one can leave it.

The kernel runs on the CPU, through g++.
"""

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from impls.top_k_mask_logits import cuda
from tests.impls.top_k_mask_logits.brute_force import NASTY, from_bits

CLUSTERS = (1, 2, 4, 8, 16)
TUNING = cuda.Tuning(
    threads=64,
    sample=2048,
    candidates=512,
    candidates_in_cluster=384,
    blocks_per_sm=1,
    batch=2,
    depth=2,
    unroll=2,
    sigmas=1,
    margin=0,
)
"""Every pass of a block takes 64 packs of 16 bytes; a bracket of one standard deviation misses often."""
PACKS_OF_PASS = TUNING.threads

SOURCES = Path(cuda.__file__).parent


@contextmanager
def in_small(cluster: int, source: Path = cuda._BRACKET) -> Iterator[None]:
    """Calls of the backend take TUNING and two clusters of this size, that take turns at the rows."""
    kernel = cuda._kernel if source == cuda._BRACKET else functools.cache(cuda._kernel.__wrapped__)
    with (
        patch.object(cuda, "_TUNING", TUNING),
        patch.object(cuda, "_cluster", lambda *_: cluster),
        patch.object(cuda, "_MAX_GRID", 2 * cluster),
        patch.object(cuda, "_BRACKET", source),
        patch.object(cuda, "_kernel", kernel),
    ):
        yield


MARKS = (
    (
        "  collect(slice, where,",
        'where.few ? "few" : slice.n <= kCandidates ? "short" : where.high == kNone ? "open" : "closed"',
    ),
    ("  if (whole) {\n    slice.begin();", '"whole"', "after"),
    ("  if (sketch.by_warp()) {", '"by warp"', "after"),
    ("    verdict.candidates_only = true;", '"all shown"'),
    ("  } else if (k <= above || !room) {", '!room ? "no room" : "missed above"', "after"),
    ("    verdict.least = where.high;", '"high"'),
    ("    if (rank <= reaching) {", '"selected"', "after"),
    ("      verdict.least = low;", '"low"'),
    ("      verdict.all = above", 'above + at_high + reaching + at_low == slice.n ? "all" : "not all"'),
    ("      verdict.least = radix_select(", '"missed below"'),
)
"""Places in the kernel, and what is said there."""


def marked(folder: Path) -> Path:
    """A copy of the kernel that writes to the file descriptor 1 which way a row takes."""
    files = {path.name: path.read_text() for path in SOURCES.glob("*.cu*")}
    for place, said, *after in MARKS:
        times = {name: text.count(place) for name, text in files.items() if place in text}
        if sum(times.values()) != 1:
            raise ValueError(f"the kernel has changed: {place!r} is there {sum(times.values())} times")
        (name,) = times
        files[name] = files[name].replace(place, f"{place} WAY({said});" if after else f"WAY({said});\n{place}")
    files[cuda._BRACKET.name] = WAY + files[cuda._BRACKET.name]
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder / cuda._BRACKET.name


WAY = """
extern "C" long write(int, const void*, unsigned long);
#define WAY(said)                                                                  \\
  do {                                                                             \\
    const char* const text = said;                                                 \\
    if (threadIdx.x == 0 && Blocks::rank() == 0) write(1, text, __builtin_strlen(text)), write(1, ", ", 2); \\
  } while (false)
"""


def length(dtype: torch.dtype, cluster: int) -> int:
    """Elements of a row: enough for each block to have a share of the sample, and no multiple of a pack."""
    return (75 * cluster + 175) * (16 // dtype.itemsize) + 1


def ordinary(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def rows(dtype: torch.dtype, cluster: int) -> Iterator[tuple[str, Tensor, int]]:
    """(name, row as float32, k). Most are of `length`; what the names say of k is true of it whatever that is."""
    n = length(dtype, cluster)
    lanes = 16 // dtype.itemsize
    normal = ordinary(n)
    third = torch.arange(n) % 3 == 0
    thirds = int(third.sum())
    two = torch.where(third, 2.0, 1.0)
    one_less = two.clone()
    one_less[n // 9 * 3 + 1] = 0.0
    three = torch.where(torch.arange(n) % 3 == 1, 0.0, two)
    # 10 elements that stand above a plateau, from barely to far: all of them are kept when it is not.
    ten = torch.tensor([1 + 2**-7, *range(2, 10), 5e4])
    above = torch.ones(n)
    above[7 :: n // 10][:10] = ten
    # … and halfway up a step, which a sample finds wherever it looks.
    step = torch.where(torch.arange(n) % 16 < 8, 6e4, 1.0)
    step[step == 1] = torch.cat([ten, torch.ones(n)])[: int((step == 1).sum())].roll(n // 7)
    up = int((step == 6e4).sum())
    ends = normal.clone()
    ends[[0, 1, -2, -1]] = torch.tensor([10.0, 11.0, 12.0, 13.0])
    infinite = normal.clone()
    infinite[third] = -math.inf
    nans = normal.clone()
    nans[5 :: n // 10][:10] = math.nan
    hidden = normal.clone()
    for turn in range(2):  # a pass of the first block, and half of its next: more than its places
        start = PACKS_OF_PASS * cluster * turn * lanes
        hidden[start : start + PACKS_OF_PASS * lanes // (turn + 1)] = 10.0
    packs = normal.clone()
    packs[: 20 * lanes : lanes] = torch.arange(10.0, 30.0)
    hundredth = 1 + n // 100

    yield "ordinary, small k", normal, 3
    for k in (45, 55, 75):
        yield f"ordinary, k = {k}", normal, k
    for seed in range(8):
        yield f"ordinary {seed}, large k", ordinary(n, seed), n // 2
    yield "ordinary, k = 1", normal, 1
    yield "ordinary, k = n - 1", normal, n - 1
    yield "large ones outside of packs", ends, 2
    yield "all equal, small k", torch.ones(n), 3
    yield "all equal, large k", torch.ones(n), n // 2
    yield "two values, k within the upper", two, thirds - hundredth
    yield "two values, k at the step", two, thirds
    yield "two values, k after the step", two, thirds + 1
    yield "two values, the lower -inf, k after the step", torch.where(third, 2.0, -math.inf), thirds + 1
    yield "two values and one element below, k after the step", one_less, thirds + 1
    yield "three values, k after the first step", three, thirds + 1
    yield "ten above many equal, k within", above, 4
    yield "ten above many equal, k at the step", above, 10
    yield "ten above many equal, k after the step", above, 11
    yield "ten on a step, k within", step, up + 4
    yield "ten on a step, k at its end", step, up + 10
    yield "all -inf", torch.full((n,), -math.inf), 3
    yield "a third -inf, k = n - 1", infinite, n - 1
    yield "ten NaN, k within", nans, 3
    yield "ten NaN, k at the step", nans, 10
    yield "all NaN", torch.full((n,), math.nan), 3
    yield "ascending", normal.sort().values, 5
    yield "descending", normal.sort(descending=True).values, 5
    yield "ties of one block", hidden, 50
    yield "large ones in many packs of one block", packs, 20
    yield "k = 0", normal, 0
    yield "k = n", normal, n
    yield "short", normal[: TUNING.candidates_in_cluster], 30
    yield "short, all equal", torch.ones(TUNING.candidates_in_cluster), 30
    yield "short, k = n - 1", infinite[: TUNING.candidates_in_cluster], TUNING.candidates_in_cluster - 1
    yield "one element", normal[:1], 1
    yield "less than a pack", normal[:3], 2
    yield "longer than it may have candidates", ordinary(TUNING.sample + 52), 900
    yield "long slices", ordinary(260 * cluster * lanes + 1), 42 * cluster
    yield "long", ordinary(24000), 12000
    yield "nasty", from_bits(NASTY[dtype], dtype).repeat(n // len(NASTY[dtype]) + 1)[:n], n // 3
