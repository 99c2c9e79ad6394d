"""harness.fill: the same bits everywhere, forever."""

# ruff: noqa: SIM300 - the expected value stands first

import hashlib
import itertools
import math

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness import fill
from harness.case import FILL_KINDS, Case, CaseError, Fill, Planted, View, validate
from harness.fill import KINDS, below, encode, literals, make_bits, mix, words
from tests.harness.making import drawn

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64)
SEEDS = st.integers(0, (1 << 32) - 1)

GOLDEN_DTYPES = FLOATS
MADE = [kind for kind in KINDS if kind != "file"]
DEFINED = [(kind, dtype) for kind in MADE for dtype in FLOATS] + [
    (kind, dtype) for kind in ("cycle", "choice", "spread", "raw") for dtype in INTEGERS
]
"""What strategies draw: every kind on floats, four on integers."""


def word(seed, counter, stream=0):
    """Word `counter` of a stream, with Python integers only."""
    key = mix(seed ^ mix((counter >> 32) + 0x9E3779B9 * (stream + 1)))
    return mix((counter & 0xFFFFFFFF) * 0x9E3779B1 & 0xFFFFFFFF ^ key)


def unsigned(x):
    return [v & 0xFFFFFFFF for v in x.tolist()]


def test_the_mixer_is_lowbias32():
    """Known values of the function by C. Wellons: 0 is fixed, 1 and 2^32 − 1 go where its definition says."""
    assert 0 == mix(0)
    x = 1
    x = (x ^ x >> 16) * 0x7FEB352D % 2**32
    x = (x ^ x >> 15) * 0x846CA68B % 2**32
    assert x ^ x >> 16 == mix(1)
    assert mix(0xFFFFFFFF) == mix(-1)


@drawn(100)
@given(SEEDS, st.integers(0, (1 << 40) - 1), st.integers(0, 4))
def test_words_equal_the_python_mixer(seed, start, stream):
    """The tensor version agrees with Python integers, for counters beyond 2^32 as well."""
    count = min(5, (1 << 32) - start % (1 << 32))
    expected = [word(seed, start + i, stream) for i in range(count)]
    assert expected == unsigned(words(seed, start, count, "cpu", stream))


@pytest.mark.parametrize("start", [(1 << 31) - 3, (1 << 31) + 1, (1 << 32) - 5, 1 << 32, (1 << 33) + 7])
def test_words_equal_the_python_mixer_at_the_edges(start):
    """Where an int32 counter changes sign or wraps."""
    assert [word(9, start + i) for i in range(4)] == unsigned(words(9, start, 4, "cpu"))


def test_the_upper_half_of_the_counter_counts():
    """Element i and element i + 2^32 differ: a huge tensor does not repeat itself."""
    assert unsigned(words(1, 0, 8, "cpu")) != unsigned(words(1, 1 << 32, 8, "cpu"))


def test_streams_and_seeds_are_apart():
    """No two of several streams and seeds share a word among the first few."""
    drawn_words = [tuple(unsigned(words(s, 0, 8, "cpu", t))) for s, t in itertools.product(range(8), range(4))]
    assert 8 * 8 * 4 == len({w for row in drawn_words for w in row})


@drawn(100)
@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=8), st.integers(1, (1 << 31) - 1))
def test_below_is_the_high_half_of_the_product(values, n):
    """Unsigned words, scaled into [0, n)."""
    signed = torch.tensor([v - (1 << 32) if v >> 31 else v for v in values], dtype=torch.int32)
    assert [v * n >> 32 for v in values] == below(signed, n).tolist()


@pytest.mark.parametrize(("kind", "dtype"), DEFINED)
def test_chunk_boundaries_do_not_matter(kind, dtype, monkeypatch):
    """The same elements come from one chunk and from many."""
    what = Fill(kind, 77, (1.0, 2.0, 5.0))
    whole = make_bits(what, dtype, (7, 13), "cpu")
    monkeypatch.setattr(fill, "CHUNK", 10)
    assert whole.tolist() == make_bits(what, dtype, (7, 13), "cpu").tolist()


@pytest.mark.parametrize(("kind", "dtype"), DEFINED)
def test_a_fill_is_deterministic_and_right_in_size(kind, dtype):
    """Twice the same call, twice the same bits, whatever torch's own generator does; integers of the dtype's size."""
    torch.manual_seed(1)
    first = make_bits(Fill(kind, 5), dtype, (3, 11), "cpu")
    torch.manual_seed(2)
    assert first.tolist() == make_bits(Fill(kind, 5), dtype, (3, 11), "cpu").tolist()
    assert (33, dtype.itemsize) == (first.numel(), first.element_size())


GOLDEN_BITS = {
    # Fill(kind, 2024) of 3 rows of 4, as hexadecimal. If this fails, the corpus means other calls.
    ("cycle", "float32"): (
        "3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000 3f800000"
    ),
    ("cycle", "float16"): "3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00",
    ("cycle", "bfloat16"): "3f80 3f80 3f80 3f80 3f80 3f80 3f80 3f80 3f80 3f80 3f80 3f80",
    ("choice", "float32"): (
        "00000000 3f800000 00000000 00000000 3f800000 00000000 3f800000 00000000 00000000 00000000 00000000 3f800000"
    ),
    ("choice", "float16"): "0000 3c00 0000 0000 3c00 0000 3c00 0000 0000 0000 0000 3c00",
    ("choice", "bfloat16"): "0000 3f80 0000 0000 3f80 0000 3f80 0000 0000 0000 0000 3f80",
    (
        "uniform",
        "float32",
    ): "bf095ebc 3dcc64b0 be3b6270 bf4dc67c 3f6136d6 bf51a760 3f73290a bd56e200 bd920b20 be832ea4 bf729dba 3f3cbf8c",
    ("uniform", "float16"): "b84c 2e60 b1e0 ba70 3b08 ba8e 3b98 aac0 aca0 b41c bb96 39e4",
    ("uniform", "bfloat16"): "bf0a 3dc0 be40 bf4e 3f60 bf52 3f72 bd60 bda0 be84 bf74 3f3c",
    (
        "dominant",
        "float32",
    ): "bf095ebc 3dcc64b0 be3b6270 bf4dc67c 3f6136d6 bf51a760 3f73290a bd56e200 bf920b20 c0832ea4 c1729dba 413cbf8c",
    ("dominant", "float16"): "b84c 2e60 b1e0 ba70 3b08 ba8e 3b98 aac0 bca0 c41c cb96 49e4",
    ("dominant", "bfloat16"): "bf0a 3dc0 be40 bf4e 3f60 bf52 3f72 bd60 bfa0 c084 c174 413c",
    ("spread", "float32"): (
        "3e50a2f6 c0c64b4f 4093b26f 3f1cc273 be9b6b66 3dac5051 c09485ab 4048f08a 40df4e6d 40b45728 3eb123c1 bedfc613"
    ),
    ("spread", "float16"): "b2f6 474f c66f ba73 3766 2c51 c5ab c08a 466d 4728 37c1 b613",
    ("spread", "bfloat16"): "be76 40cf c0ef bf73 3ee6 3dd1 c0ab c00a 40ed 40a8 3ec1 be93",
    ("near", "float32"): (
        "3fc00001 3fc00004 3fc00003 3fc00000 3fc00007 3fc00000 3fc00007 3fc00003 3fc00003 3fc00002 3fc00000 3fc00006"
    ),
    ("near", "float16"): "3e01 3e04 3e03 3e00 3e07 3e00 3e07 3e03 3e03 3e02 3e00 3e06",
    ("near", "bfloat16"): "3fc1 3fc4 3fc3 3fc0 3fc7 3fc0 3fc7 3fc3 3fc3 3fc2 3fc0 3fc6",
    ("sorted", "float32"): (
        "c0000000 a0000000 00000000 20000000 c0000000 a0000000 00000000 20000000 c0000000 a0000000 00000000 20000000"
    ),
    ("sorted", "float16"): "c000 a000 0000 2000 c000 a000 0000 2000 c000 a000 0000 2000",
    ("sorted", "bfloat16"): "c000 a000 0000 2000 c000 a000 0000 2000 c000 a000 0000 2000",
    ("outlier", "float32"): (
        "3fc00001 3fc00004 3fc00003 7149f2ca 3fc00007 3fc00000 3fc00007 7149f2ca 3fc00003 3fc00002 3fc00000 7149f2ca"
    ),
    ("outlier", "float16"): "3e01 3e04 3e03 7bff 3e07 3e00 3e07 7bff 3e03 3e02 3e00 7bff",
    ("outlier", "bfloat16"): "3fc1 3fc4 3fc3 714a 3fc7 3fc0 3fc7 714a 3fc3 3fc2 3fc0 714a",
    ("mostly_minus_inf", "float32"): (
        "ff800000 ff800000 ff800000 ff800000 ff800000 ff800000 ff800000 4048f08a 40df4e6d ff800000 ff800000 ff800000"
    ),
    ("mostly_minus_inf", "float16"): "fc00 fc00 fc00 fc00 fc00 fc00 fc00 c08a 466d fc00 fc00 fc00",
    ("mostly_minus_inf", "bfloat16"): "ff80 ff80 ff80 ff80 ff80 ff80 ff80 c00a 40ed ff80 ff80 ff80",
    ("specials", "float32"): (
        "3e50a2f6 c0c64b4f 4093b26f 3f1cc273 ffc00000 3dac5051 c09485ab 80000001 80000000 80800000 ffc00001 bedfc613"
    ),
    ("specials", "float16"): "b2f6 474f c66f ba73 fe00 2c51 c5ab 8001 8000 8400 fe01 b613",
    ("specials", "bfloat16"): "be76 40cf c0ef bf73 ffc0 3dd1 c0ab 8001 8000 8080 ffc1 be93",
    ("raw", "float32"): (
        "3b50a2f6 8cc64b4f 6893b26f 191cc273 f09b6b66 172c5051 f99485ab 7948f08a 76df4e6d 5f345728 06b123c1 de5fc613"
    ),
    ("raw", "float16"): "a2f6 4b4f b26f c273 6b66 5051 85ab f08a 4e6d 5728 23c1 c613",
    ("raw", "bfloat16"): "a2f6 4b4f b26f c273 6b66 5051 85ab f08a 4e6d 5728 23c1 c613",
    ("cycle", "int32"): (
        "00000001 00000001 00000001 00000001 00000001 00000001 00000001 00000001 00000001 00000001 00000001 00000001"
    ),
    ("cycle", "int64"): (
        "0000000000000001 0000000000000001 0000000000000001 0000000000000001 "
        "0000000000000001 0000000000000001 0000000000000001 0000000000000001 "
        "0000000000000001 0000000000000001 0000000000000001 0000000000000001"
    ),
    ("choice", "int32"): (
        "00000000 00000001 00000000 00000000 00000001 00000000 00000001 00000000 00000000 00000000 00000000 00000001"
    ),
    ("choice", "int64"): (
        "0000000000000000 0000000000000001 0000000000000000 0000000000000000 "
        "0000000000000001 0000000000000000 0000000000000001 0000000000000000 "
        "0000000000000000 0000000000000000 0000000000000000 0000000000000001"
    ),
    ("spread", "int32"): (
        "3b50a2f6 8cc64b4f 6893b26f 191cc273 f09b6b66 172c5051 f99485ab 7948f08a 76df4e6d 5f345728 06b123c1 de5fc613"
    ),
    ("spread", "int64"): (
        "3b50a2f629c998af 8cc64b4f81da59cc 6893b26f54bf7b45 191cc273b5a76104 "
        "f09b6b66fe19063a 172c5051078e2054 f99485abf0e2c233 7948f08abc65c91d "
        "76df4e6d170cb144 5f3457287d44b0b8 06b123c188b06b4f de5fc6136ce2dd7f"
    ),
    ("raw", "int32"): (
        "3b50a2f6 8cc64b4f 6893b26f 191cc273 f09b6b66 172c5051 f99485ab 7948f08a 76df4e6d 5f345728 06b123c1 de5fc613"
    ),
    ("raw", "int64"): (
        "3b50a2f629c998af 8cc64b4f81da59cc 6893b26f54bf7b45 191cc273b5a76104 "
        "f09b6b66fe19063a 172c5051078e2054 f99485abf0e2c233 7948f08abc65c91d "
        "76df4e6d170cb144 5f3457287d44b0b8 06b123c188b06b4f de5fc6136ce2dd7f"
    ),
}

GOLDEN_HASHES = {
    ("cycle", "float32"): "fc8f166e2128",
    ("cycle", "float16"): "93b2cd722953",
    ("cycle", "bfloat16"): "45626814c7be",
    ("choice", "float32"): "5fd2322cb654",
    ("choice", "float16"): "ec9b14ba90cb",
    ("choice", "bfloat16"): "b5d79b1f3359",
    ("uniform", "float32"): "cf0227796c04",
    ("uniform", "float16"): "d2fca88fdacd",
    ("uniform", "bfloat16"): "1d030bf5f42c",
    ("dominant", "float32"): "f62d7911273f",
    ("dominant", "float16"): "9f1b97638ca2",
    ("dominant", "bfloat16"): "7293c0703e58",
    ("spread", "float32"): "c4375b10469a",
    ("spread", "float16"): "8c4ec0858d34",
    ("spread", "bfloat16"): "7a7e32abd384",
    ("near", "float32"): "60b4c8b1ec2d",
    ("near", "float16"): "1ba44a3d17c8",
    ("near", "bfloat16"): "384fdee2303e",
    ("sorted", "float32"): "07b8e91fd464",
    ("sorted", "float16"): "24060c0151fd",
    ("sorted", "bfloat16"): "24060c0151fd",
    ("outlier", "float32"): "34706fcc86ea",
    ("outlier", "float16"): "60bee3164389",
    ("outlier", "bfloat16"): "35949dbd5bde",
    ("mostly_minus_inf", "float32"): "fbd03050450b",
    ("mostly_minus_inf", "float16"): "50e5c2a724ed",
    ("mostly_minus_inf", "bfloat16"): "755809ad16f1",
    ("specials", "float32"): "54462dc7f42e",
    ("specials", "float16"): "cf46d492de99",
    ("specials", "bfloat16"): "ae93fe75207f",
    ("raw", "float32"): "686f489c19af",
    ("raw", "float16"): "3b8dc4827f31",
    ("raw", "bfloat16"): "3b8dc4827f31",
    ("cycle", "int32"): "498e2fa07568",
    ("cycle", "int64"): "8b8c4d0adc5f",
    ("choice", "int32"): "5f80fff5cffd",
    ("choice", "int64"): "1f4434b2eab6",
    ("spread", "int32"): "686f489c19af",
    ("spread", "int64"): "1aff1a45ccd7",
    ("raw", "int32"): "686f489c19af",
    ("raw", "int64"): "1aff1a45ccd7",
}


def golden(kind, dtype):
    return make_bits(Fill(kind, 2024), dtype, (3, 4), "cpu")


@pytest.mark.parametrize(("kind", "dtype"), DEFINED)
def test_bits_never_change(kind, dtype):
    """The first 12 elements of every kind and dtype, pinned: entries on disk depend on them."""
    size = 8 * dtype.itemsize
    actual = [f"{v & ((1 << size) - 1):0{size // 4}x}" for v in golden(kind, dtype).tolist()]
    assert GOLDEN_BITS[kind, str(dtype).removeprefix("torch.")].split() == actual


@pytest.mark.parametrize(("kind", "dtype"), DEFINED)
def test_many_bits_never_change(kind, dtype):
    """A hash over 5000 elements, for what the first 12 do not show."""
    data = make_bits(Fill(kind, 4_000_000_000), dtype, (5, 1000), "cpu").numpy().tobytes()
    assert GOLDEN_HASHES[kind, str(dtype).removeprefix("torch.")] == hashlib.sha256(data).hexdigest()[:12]


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "dtype"), DEFINED)
def test_a_gpu_makes_the_same_bits(kind, dtype):
    """Every kind, over several blocks of a GPU and several chunks of nothing: bit for bit as on the CPU."""
    what = Fill(kind, 123, (1.0, -2.0, 5.0), (Planted(7, 3.0),))
    on_cpu = make_bits(what, dtype, (37, 1001), "cpu")
    on_gpu = make_bits(what, dtype, (37, 1001), "cuda")
    assert torch.equal(on_cpu, on_gpu.cpu())


@pytest.mark.gpu
def test_a_gpu_makes_the_same_words_beyond_2_to_the_32():
    """The conversion of a large counter to 32 bits wraps on a GPU as on the CPU."""
    for start in ((1 << 31) - 500, (1 << 32) - 1000, 1 << 32, (5 << 32) + 3_000_000_000):
        assert torch.equal(words(3, start, 1000, "cpu"), words(3, start, 1000, "cuda").cpu())


def values(what, dtype, shape):
    return make_bits(what, dtype, shape, "cpu").view(dtype).view(shape)


@pytest.mark.parametrize("dtype", FLOATS)
def test_cycle_repeats_its_values(dtype):
    """As many values as elements are explicit values; fewer repeat, across rows."""
    assert [[1, 2], [3, 1]] == values(Fill("cycle", 0, (1.0, 2.0, 3.0)), dtype, (2, 2)).tolist()
    assert [1, 1, 1] == values(Fill("cycle"), dtype, (3,)).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_choice_takes_from_its_values_alone(dtype):
    """Every value comes up, and nothing else."""
    assert {1.0, 2.0, 4.0} == set(values(Fill("choice", 3, (1.0, 2.0, 4.0)), dtype, (100,)).tolist())


@pytest.mark.parametrize("dtype", FLOATS)
def test_spread_lies_in_its_range(dtype):
    """Magnitudes in [2^-4, 2^4), both signs, every exponent."""
    made = values(Fill("spread", 3), dtype, (1000,)).double()
    assert bool(((made.abs() >= 2**-4) & (made.abs() < 2**4)).all())
    assert 1000 - 500 < int((made < 0).sum()) + 250 < 1000
    assert set(range(-3, 5)) == set(torch.frexp(made).exponent.tolist())


@pytest.mark.parametrize("dtype", FLOATS)
def test_near_values_share_all_but_three_bits(dtype):
    """Eight neighbours from one value on, all of them reached."""
    made = make_bits(Fill("near", 1, (1.5,)), dtype, (200,), "cpu")
    base = int(encode((1.5,), dtype)[0])
    assert set(range(base, base + 8)) == set(made.tolist())


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64])
@pytest.mark.parametrize("columns", [1, 2, 7, 300])
def test_sorted_rows_rise_and_fall(dtype, columns):
    """An even seed rises strictly from −2, an odd one is the same row backwards."""
    rising = values(Fill("sorted", 0), dtype, (2, columns)).double()
    falling = values(Fill("sorted", 1), dtype, (2, columns)).double()
    assert rising[0].tolist() == sorted(set(rising[0].tolist()))
    assert -2.0 == rising[1, 0].item()
    assert bool((rising.abs() <= 2).all())
    assert columns < 300 or rising[0, -1].item() > 0.01
    assert rising.flip(1).tolist() == falling.tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_specials_hold_every_kind_of_float(dtype):
    """NaN of two payloads and both signs, both infinities, both zeros, subnormals, the largest finite value."""
    made = values(Fill("specials", 1), dtype, (4000,))
    bits = {v & ((1 << 8 * dtype.itemsize) - 1) for v in make_bits(Fill("specials", 1), dtype, (4000,), "cpu").tolist()}
    info = torch.finfo(dtype)
    inf = int(encode(("inf",), dtype)[0])
    sign = 1 << (8 * dtype.itemsize - 1)
    quiet = int(encode(("nan",), dtype)[0])
    assert {0, sign, inf, inf | sign, quiet, quiet | 1, quiet | sign, quiet | 1 | sign} <= bits
    finite = made[made.isfinite()].double().abs()
    assert info.max == finite.max().item()
    assert 0 < finite[finite > 0].min().item() < info.tiny


@pytest.mark.parametrize("dtype", FLOATS)
def test_outlier_has_one_huge_element_a_row(dtype):
    """One column of each row is far above all others."""
    made = values(Fill("outlier", 8), dtype, (3, 50)).double()
    assert [1, 1, 1] == (made > 1000).sum(1).tolist()


def test_mostly_minus_inf_is_mostly_minus_inf():
    """Between one element in 16 and one in 4 is something else."""
    finite = values(Fill("mostly_minus_inf", 8), torch.float32, (4000,)).isfinite().sum().item()
    assert 4000 // 16 < finite < 4000 // 4


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_planted_values_land_where_they_are_said(dtype):
    """Row-major, on any kind, the others untouched."""
    plain = make_bits(Fill("raw", 4), dtype, (3, 4), "cpu")
    planted = make_bits(Fill("raw", 4, (), (Planted(5, 3.0), Planted(11, 1.0))), dtype, (3, 4), "cpu")
    expected = plain.clone()
    expected[5], expected[11] = encode((3.0, 1.0), dtype)
    assert expected.tolist() == planted.tolist()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_of_two_values_planted_at_one_place_the_last_stays(device):
    """On every device, however many there are."""
    planted = tuple(Planted(i % 7, float(i)) for i in range(700))
    made = make_bits(Fill("cycle", 0, (), planted), torch.float32, (7,), device)
    assert [693.0 + i for i in range(7)] == made.view(torch.float32).tolist()


def test_encoding_is_exact():
    """IEEE bit patterns of a few values, by hand."""
    assert [0x3F800000, 0x7F800000] == encode((1.0, "inf"), torch.float32).tolist()
    assert [0x3C00, 0x7C00, 0x7C00, 0x0001] == encode((1.0, "inf", 65520.0, 2.0**-24), torch.float16).tolist()
    assert [0x3F80, 0x7F80] == encode((1.0, "inf"), torch.bfloat16).tolist()
    assert [0x7FC00000, 0x7FC0] == [
        *encode(("nan",), torch.float32).tolist(),
        *encode(("nan",), torch.bfloat16).tolist(),
    ]
    assert [-(1 << 31)] == encode((-0.0,), torch.float32).tolist()
    assert [-1, 1 << 30] == encode((-1, 1 << 30), torch.int32).tolist()
    assert [1] == encode(((1 << 32) + 1,), torch.int32).tolist()
    assert [255] == encode((-1,), torch.uint8).tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_encoding_rounds_once(dtype):
    """A value just above the middle of two neighbours rounds up: no detour over float32 that makes it a tie."""
    step = torch.finfo(dtype).eps
    one = int(encode((1.0,), dtype)[0])
    assert one + 1 == int(encode((1.0 + step / 2 + 2.0**-40,), dtype)[0])
    assert one == int(encode((1.0 + step / 2,), dtype)[0])
    assert one + 2 == int(encode((1.0 + 3 * step / 2,), dtype)[0])


@drawn(300)
@given(
    st.lists(st.floats(width=32) | st.floats(), min_size=1, max_size=20).filter(lambda v: not any(map(math.isnan, v)))
)
def test_encoding_is_that_of_torch_where_torch_rounds_once(values):
    """To float32 and float64 any value, to 16 bits those of float32: subnormals, overflow, both zeros."""
    exact = torch.tensor(values, dtype=torch.float64)
    numbers = tuple(values)
    short = tuple(exact.float().double().tolist())
    for dtype in (torch.float32, torch.float64):
        assert encode(numbers, dtype).tolist() == exact.to(dtype).view(fill.INT[dtype.itemsize]).tolist()
    for dtype in (torch.float16, torch.bfloat16):
        assert encode(short, dtype).tolist() == exact.float().to(dtype).view(torch.int16).tolist()


def test_an_empty_fill_is_empty():
    """No elements, no planted values, the right dtype."""
    made = make_bits(Fill("cycle", planted=(Planted(0, 1.0),)), torch.float16, (0, 4), "cpu")
    assert (0, torch.int16) == (made.numel(), made.dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("scale", "power"), [(1.0, 1.0), (3.9, 2.0), (0.25, 0.25)])
def test_uniform_values_are_evenly_spread_up_to_the_scale(dtype, scale, power):
    """In [-scale, scale), the scale taken down to a power of two; a quarter of the values in each quarter of that."""
    made = values(Fill("uniform", 7, (scale,)), dtype, (4000,)).double() / power
    assert made.min() >= -1
    assert made.max() < 1
    quarters = torch.histc(made, 4, -1, 1).tolist()
    assert all(900 < n < 1100 for n in quarters), quarters


def test_uniform_values_use_the_whole_mantissa():
    """Neighbours differ by 2^-10 in float16 and by 2^-7 in bfloat16, as numbers next to 1 do."""
    for dtype, step in ((torch.float16, 2.0**-10), (torch.bfloat16, 2.0**-7)):
        distinct = values(Fill("uniform", 3), dtype, (100_000,)).double().unique()
        assert step == float(distinct.diff().min())
        assert step == float(distinct.diff().max())


def test_one_row_dominates():
    """All dimensions but the last are rows; one of them is 16 times as large, and its values are random as well."""
    made = values(Fill("dominant", 5, (0.5,)), torch.float16, (4, 3, 64)).double().abs().amax(-1).view(-1)
    assert 1 == int((made > 0.5).sum())
    assert made.max() > 4


def test_an_unknown_kind_is_a_clear_error():
    """It names the kinds there are."""
    with pytest.raises(CaseError, match="unknown fill kind 'noise'; known are cycle, choice"):
        make_bits(Fill("noise"), torch.float32, (2,), "cpu")


@pytest.mark.parametrize("kind", MADE)
def test_every_kind_on_integers_works(kind):
    """A case written by hand may ask for any kind on any tensor; a bool is 0 or 1."""
    for dtype in (torch.int32, torch.uint8, torch.bool):
        made = make_bits(Fill(kind, 3), dtype, (4, 4), "cpu")
        if dtype == torch.bool:
            assert {0, 1} >= set(made.tolist())


def test_the_kinds_are_those_that_a_case_may_name():
    """In one order, each by the maker of its name."""
    assert {kind: f"_{kind}" for kind in FILL_KINDS} == {kind: maker.__name__ for kind, maker in KINDS.items()}


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("value", ["nan", "inf", math.nan, math.inf])
def test_what_is_no_integer_is_a_clear_error(value, dtype):
    """CaseError, as for everything that a file can say."""
    with pytest.raises(CaseError, match="cannot hold"):
        make_bits(Fill("cycle", 0, (value,)), dtype, (2,), "cpu")


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64])
def test_an_integer_beyond_every_float_is_a_clear_error(dtype):
    """With more digits than Python would print, too; an integer tensor takes its lowest bits."""
    for value in (10**400, -(10**400), 10**5000):
        with pytest.raises(CaseError, match="cannot hold"):
            make_bits(Fill("cycle", 0, (value,)), dtype, (2,), "cpu")
    assert [0] == make_bits(Fill("cycle", 0, (10**5000,)), torch.int64, (1,), "cpu").tolist()


DTYPES = (*FLOATS, torch.float64, torch.int8, torch.uint8, torch.int16, *INTEGERS)


def reread(values):
    """As they come out of an entry."""
    return msgspec.json.decode(msgspec.json.encode(Fill("cycle", 0, values)), type=Fill).values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["specials", "raw"])
def test_literals_are_every_bit(dtype, kind):
    """Any bits, NaN with any payload and sign, subnormals and both zeros among them: to numbers, through JSON, and back."""
    bits = make_bits(Fill(kind, 6), dtype, (500,), "cpu")
    spelled = literals(bits.view(dtype).view(20, 25))
    validate(Case("x", {}, (8 * 500,), {"t": View(0, str(dtype)[6:], (500,), (1,))}, {"t": Fill("cycle", 0, spelled)}))
    assert bits.tolist() == encode(reread(spelled), dtype).tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_literals_of_all_halves(dtype):
    """Each of the 2^16 patterns."""
    bits = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
    assert bits.tolist() == encode(reread(literals(bits.view(dtype))), dtype).tolist()


def test_literals_are_plain_where_plain_numbers_say_all():
    """A bit pattern for a NaN with a payload or a sign alone; a strided tensor in row-major order; bools are 0 and 1."""
    nans = torch.tensor([0x7FC00000, -0x400000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert ("nan", "0xffc00000", "0x7fc00001") == literals(nans)
    assert ["1.5", "0.0", "-0.0", "'-inf'"] == list(map(repr, literals(torch.tensor([1.5, 0.0, -0.0, -math.inf]))))
    assert (1, 3, 2, 4) == literals(torch.tensor([[1, 2], [3, 4]]).t())
    assert "(1, 0)" == repr(literals(torch.tensor([True, False])))
    assert () == literals(torch.empty(0, 3))


def test_a_bool_of_another_byte_has_no_literal():
    """What it means differs from one operation of torch to the next."""
    with pytest.raises(CaseError, match="neither 0 nor 1"):
        literals(torch.tensor([0, 2], dtype=torch.uint8).view(torch.bool))


def test_a_bit_pattern_is_the_bits():
    """Of any dtype, short ones filled up with zeros in front; in planted values too; and as a scale."""
    assert [0x7FC00001, 1, -1] == encode(("0x7fc00001", "0x1", "0xFFFFFFFF"), torch.float32).tolist()
    assert [-1, 5] == encode(("0xffffffffffffffff", "0x5"), torch.int64).tolist()
    assert [1, 0] == encode(("0x1", "0x00"), torch.bool).tolist()
    planted = make_bits(Fill("cycle", 0, (), (Planted(1, "0x7e01"),)), torch.float16, (2,), "cpu")
    assert [0x3C00, 0x7E01] == planted.tolist()
    for kind in ("uniform", "dominant", "near"):
        expected = make_bits(Fill(kind, 3, (4.0,)), torch.float16, (50,), "cpu")
        assert expected.tolist() == make_bits(Fill(kind, 3, ("0x4400",)), torch.float16, (50,), "cpu").tolist()


NO_PATTERNS = [
    ("0x10000", "float16", "cannot hold"),
    ("0x2", "bool", "cannot hold"),
    ("0x1ffffffff", "float32", "cannot hold"),
    *(
        (text, "float32", "no number")
        for text in ("0x", "0xg", "7fc00001", "-0x1", "0x1\n", "0x٣", "0x" + "0" * 17, "1")
    ),
]


@pytest.mark.parametrize(("text", "dtype", "message"), NO_PATTERNS)
def test_what_is_no_bit_pattern_of_a_dtype_is_a_clear_error(text, dtype, message):
    """Wider than it, or no hexadecimal number: as a value and as a planted one."""
    for what in (Fill("cycle", 0, (text,)), Fill("cycle", 0, (), (Planted(0, text),))):
        with pytest.raises(CaseError, match=message):
            validate(Case("x", {}, (8,), {"t": View(0, dtype, (1,), (1,))}, {"t": what}))
    with pytest.raises(CaseError, match="cannot hold"):
        encode((text,), getattr(torch, dtype))
