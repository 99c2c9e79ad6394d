"""What only a device can show: streams, threads, graph capture, memory, and tensors too large for 32-bit offsets."""

import threading
from functools import partial

import pytest
import torch

from impls.top_k_mask_logits import cuda, top_k_mask_logits, top_k_mask_logits_
from oracles import top_k_mask_logits as oracle
from tests import adversarial
from tests.impls.top_k_mask_logits.brute_force import DTYPES, bits, expected, nasty_rows

pytestmark = pytest.mark.gpu

COMPILED = ["cuda", "triton"]

LARGE = pytest.mark.xdist_group("device memory")
"""Tests that need tens of gigabytes: with `pytest --dist loadgroup` they have one process, and do not meet."""


def _same(a, b):
    return torch.equal(bits(a), bits(b))


def _logits(rows, vocab, dtype=torch.float32, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(rows, vocab, device="cuda", generator=generator).to(dtype)


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_more_rows_than_blocks_with_mixed_k(backend, dtype):
    """A block's second row is not counted with its first row's histogram, whatever their k."""
    logits = torch.cat([nasty_rows(dtype, 700, 300, seed=3).cuda(), _logits(700, 300, dtype)])
    k = torch.tensor([1, 300, 0, 299, 5, 1000, -4], device="cuda").repeat(200)
    want = top_k_mask_logits(logits, k, backend="torch")
    assert torch.equal(expected(logits, k), bits(want).cpu())
    assert _same(want, top_k_mask_logits(logits, k, backend=backend))


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("vocab", [32000, 50257, 57600, 115200, 128256, 151936])
def test_real_vocabularies(backend, vocab):
    """Every backend finds the same set, from k = 1 to vocab - 1, for all dtypes."""
    for dtype in DTYPES:
        logits = _logits(4, vocab, dtype, seed=vocab)
        logits[1, ::3] = -torch.inf
        logits[2] = logits[2].sign()
        logits[3, 5] = torch.nan
        for k in (1, 50, 2048, vocab // 2, vocab - 1):
            want = top_k_mask_logits(logits, k, backend="torch")
            assert _same(want, top_k_mask_logits(logits, k, backend=backend)), (dtype, k)


def _allocated(call):
    """(bytes beyond what there was, at the peak; number of allocations) of torch's device memory in a call's second run."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, count = torch.cuda.memory_allocated(), torch.cuda.memory_stats()["allocation.all.allocated"]
    call()
    torch.cuda.synchronize()
    return (
        torch.cuda.max_memory_allocated() - before,
        torch.cuda.memory_stats()["allocation.all.allocated"] - count,
    )


SHAPES = [(1, 5), (64, 32000), (1, 128256), (3, 262144), (700, 4096), (2, 600000), (2048, 128256)]


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("shape", SHAPES)
def test_in_place_allocates_no_device_memory(backend, shape):
    """Neither a scalar nor a tensor k needs scratch memory, in any dtype, at lengths of every kernel."""
    for dtype in DTYPES:
        logits, k = _logits(*shape, dtype), torch.full(shape[:1], 9, device="cuda")
        for each in (k, shape[1] // 2):
            assert _allocated(partial(top_k_mask_logits_, logits, each, backend=backend)) == (0, 0), dtype


def test_what_allocates_device_memory_is_seen():
    """A backend that sorts, a wrapper that makes a copy first, and one that frees a byte at once."""
    logits = _logits(64, 32000)
    for call in (
        lambda: top_k_mask_logits_(logits, 9, backend="torch"),
        lambda: logits.copy_(top_k_mask_logits(logits, 9, backend="cuda")),
        lambda: (torch.empty(1, device="cuda"), top_k_mask_logits_(logits, 9, backend="cuda")),
    ):
        peak, count = _allocated(call)
        assert peak > 0
        assert count > 0


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize(
    ("rows", "vocab", "k"), [(4096, 32000, 50), (4096, 32000, 16000), (3, 128256, 2000), (1, 262144, 9)]
)
def test_a_thousand_repeats_in_place_are_bit_identical(backend, rows, vocab, k):
    """No order in which blocks happen to run, and no memory that a call left, changes a bit."""
    logits = _logits(rows, vocab, torch.bfloat16)
    want, x = bits(top_k_mask_logits(logits, k, backend="torch")), torch.empty_like(logits)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(1000):
        x.copy_(logits)
        top_k_mask_logits_(x, k, backend=backend)
        wrong += (bits(x) != want).any()
    assert int(wrong) == 0


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [5000, 128256, 262144, 262145, 300001])
def test_rows_that_hurt_a_selection(backend, dtype, vocab):
    """All equal, two values, an outlier, a tiny spread, sorted, NaN, shared digits …, each row with its own clusters of
    blocks (few rows) and without (many), in place and not, for small, middling and large k."""
    few = adversarial.rows(dtype, vocab, "cuda")
    many = few.repeat(60, 1)
    for k in (1, 50, vocab // 2, vocab - 1):
        want = top_k_mask_logits(few, k, backend="torch")
        assert _same(want, top_k_mask_logits(few, k, backend=backend)), k
        for i in range(len(few)):
            assert _same(want[i : i + 1], top_k_mask_logits_(few[i : i + 1].clone(), k, backend=backend)), (i, k)
        assert _same(want.repeat(60, 1), top_k_mask_logits_(many.clone(), k, backend=backend)), k


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_wildly_mixed_k_in_long_rows(backend, dtype):
    """Neighbouring rows that keep nothing, one element, half, all: neither leaves anything behind for the next."""
    vocab = 128256
    ks = [0, 1, vocab, 2, vocab - 1, 50, vocab // 2, 2048, vocab + 7, -3, 1 << 40, 1000]
    k = torch.tensor(ks, device="cuda").repeat(60)
    logits = adversarial.rows(dtype, vocab, "cuda").repeat(66, 1)[: len(k)].contiguous()
    want = top_k_mask_logits(logits, k, backend="torch")
    assert _same(want, top_k_mask_logits(logits, k, backend=backend))
    assert _same(want[:12], top_k_mask_logits(logits[:12], k[:12], backend=backend))
    assert _same(want, top_k_mask_logits_(logits, k, backend=backend))


@pytest.mark.parametrize("backend", COMPILED)
def test_in_place_with_nothing_to_mask_changes_no_bit(backend):
    """k >= vocab, for all rows or some, whatever bits there are. (`test_read_only.py` shows that nothing is written.)"""
    logits = nasty_rows(torch.float32, 40, 5000).cuda()
    before = logits.clone()
    top_k_mask_logits_(logits, 5000, backend=backend)
    top_k_mask_logits_(logits, torch.full((40,), 6000, device="cuda"), backend=backend)
    assert _same(before, logits)


@pytest.mark.parametrize("backend", COMPILED)
def test_graph_capture_replays_on_new_values(backend):
    """Scalar and tensor k can be captured, and a replay reads what the tensors hold then."""
    logits, k = _logits(5, 3000), torch.full((5,), 7, device="cuda")
    top_k_mask_logits(logits, k, backend=backend)
    top_k_mask_logits(logits, 3, backend=backend)
    graph, by_row, scalar = torch.cuda.CUDAGraph(), torch.empty_like(logits), logits.clone()
    with torch.cuda.graph(graph):
        top_k_mask_logits(logits, k, out=by_row, backend=backend)
        scalar.copy_(logits)
        top_k_mask_logits_(scalar, 3, backend=backend)
    logits.copy_(_logits(5, 3000, seed=9))
    k.copy_(torch.tensor([1, 0, 3000, 4000, 20]))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(expected(logits, k), bits(by_row).cpu())
    assert torch.equal(expected(logits, 3), bits(scalar).cpu())


def test_the_first_call_of_all_may_be_captured():
    """Building and loading a kernel does not break a capture."""
    logits = _logits(3, 500)
    cuda._kernel.cache_clear()
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(logits)
    with torch.cuda.graph(graph):
        top_k_mask_logits(logits, 4, out=out, backend="cuda")
    graph.replay()
    assert torch.equal(expected(logits, 4), bits(out).cpu())


@pytest.mark.parametrize("backend", COMPILED)
def test_work_goes_to_the_current_stream(backend):
    """A call waits for what its stream did before: the input is written by a slow kernel on the same stream."""
    logits, late = _logits(8, 40000), _logits(8, 40000, seed=5)
    top_k_mask_logits(logits, 20, backend=backend)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        logits.copy_(late)
        actual = top_k_mask_logits(logits, 20, backend=backend)
    stream.synchronize()
    assert _same(top_k_mask_logits(late, 20, backend="torch"), actual)


@pytest.mark.parametrize("backend", COMPILED)
def test_several_threads_and_streams_at_once(backend):
    """Threads that launch the same kernel on streams of their own don't touch each other's arguments or results."""
    inputs = [_logits(16, 5000, DTYPES[i % 3], seed=i) for i in range(8)]
    ks = [torch.full((16,), 1 + 300 * i, device="cuda") for i in range(8)]
    wants = [top_k_mask_logits(x, k, backend="torch") for x, k in zip(inputs, ks)]
    top_k_mask_logits(inputs[0], 3, backend=backend)
    torch.cuda.synchronize()
    wrong = []

    def work(i):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    got = top_k_mask_logits(inputs[i], ks[i], backend=backend)
                    if not _same(wants[i], got):
                        wrong.append(i)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_thread_that_never_used_cuda_can_launch():
    """A new thread has no current context; its first driver call may be this launch, on the default stream."""
    logits, outs = _logits(2, 100), []
    out = torch.empty_like(logits)
    thread = threading.Thread(target=lambda: outs.append(top_k_mask_logits(logits, 3, out=out, backend="cuda")))
    thread.start()
    thread.join()
    assert outs
    assert torch.equal(expected(logits, 3), bits(outs[0]).cpu())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("backend", COMPILED)
def test_tensors_on_a_device_that_is_not_current(backend):
    """The call runs on the tensors' device, and the current device is as before."""
    logits = _logits(3, 400).to("cuda:1")
    actual = top_k_mask_logits(logits, 6, backend=backend)
    assert torch.cuda.current_device() == 0
    assert torch.equal(expected(logits, 6), bits(actual).cpu())


def test_auto_takes_the_cuda_backend():
    """On a supported GPU, "auto" is "cuda"."""
    from impls.top_k_mask_logits import dispatch

    assert dispatch._backend("auto", torch.device("cuda:0")) is cuda


@LARGE
@pytest.mark.parametrize("backend", COMPILED)
def test_more_than_two_to_the_31_elements(backend):
    """Rows past 2^31 and 2^32 elements are found in place, and rows before them are not touched twice."""
    rows, vocab = 33, 1 << 27
    if torch.cuda.mem_get_info()[0] < 3 * rows * vocab * 2:
        pytest.skip("needs 27 GB of device memory")
    logits = torch.zeros(rows, vocab, dtype=torch.float16, device="cuda")
    columns = torch.arange(rows, device="cuda") * 1009 + 7
    logits[torch.arange(rows), columns] = 1.0
    logits[torch.arange(rows), columns + 1] = 0.5
    top_k_mask_logits_(logits, torch.full((rows,), 2, device="cuda"), backend=backend)
    for row in range(rows):
        assert (logits[row] != -torch.inf).nonzero()[:, 0].tolist() == [columns[row].item(), columns[row].item() + 1]


@LARGE
def test_a_row_of_more_than_two_to_the_32_elements():
    """Counts that don't fit in 32 bits: k itself is 2^32, and all but 40 planted zeros are kept."""
    k = 1 << 32
    vocab = k + 40
    if torch.cuda.mem_get_info()[0] < 3 * vocab * 2:
        pytest.skip("needs 26 GB of device memory")
    logits = torch.empty(1, vocab, dtype=torch.float16, device="cuda")
    bits(logits).random_(1, 0x7C00)  # positive numbers, evenly over the histogram's bins
    planted = torch.arange(40, device="cuda") * (vocab // 40) + 11
    logits[0, planted] = 0.0
    assert top_k_mask_logits_(logits, k, backend="cuda") is logits
    assert bool((logits[0, planted] == -torch.inf).all())
    assert sum(int((part == -torch.inf).sum()) for part in logits[0].split(1 << 30)) == 40


@LARGE
@pytest.mark.parametrize("backend", COMPILED)
def test_a_batch_of_more_than_two_to_the_32_elements(backend):
    """33500 rows of Llama 3's vocabulary in place, each with its own k, judged by the oracle in blocks of rows: the first and the
    last, those around 2^31 and 2^32 elements, and some in between."""
    block, blocks, vocab = 250, 134, 128256
    needed, free = 16 << 30, torch.cuda.mem_get_info()[0]
    if free < needed:
        pytest.skip(
            f"needs {needed >> 30} GiB of free device memory for 4.3e9 elements and their oracle; {free >> 30} are free"
        )
    logits = torch.empty(block * blocks, vocab, dtype=torch.bfloat16, device="cuda")
    for i in range(blocks):
        logits[i * block : (i + 1) * block] = _logits(block, vocab, torch.bfloat16, seed=i)
    k = torch.arange(block * blocks, device="cuda") * 37 % 3001
    assert logits.numel() > 1 << 32
    assert top_k_mask_logits_(logits, k, backend=backend) is logits
    borders = [(1 << 31) // vocab // block, (1 << 32) // vocab // block]
    for i in sorted({0, 1, *(b + d for b in borders for d in (-1, 0)), borders[0] + 1, 17, 51, 99, 120, blocks - 1}):
        rows = slice(i * block, (i + 1) * block)
        reference = oracle.reference(_logits(block, vocab, torch.bfloat16, seed=i), k[rows], oracle.Semantics())
        judgement = oracle.judge({"out": logits[rows]}, reference)["out"]
        assert judgement.kind is None, (i, judgement.kind, int(judgement.wrong.sum()))
