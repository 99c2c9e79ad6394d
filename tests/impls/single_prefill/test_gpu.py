"""What only a device can show: streams, threads, graph capture, memory, and tensors too large for 32-bit offsets."""

# ruff: noqa: SIM300 - the expected value stands first

import threading

import pytest
import torch

from impls.single_prefill import single_prefill
from tests.impls.single_prefill.brute_force import DTYPES, check, inputs

pytestmark = pytest.mark.gpu

COMPILED = ["cuda", "triton"]
BACKENDS = [*COMPILED, "torch"]


def _inputs(*sizes, dtype=torch.float16, seed=0):
    return [x.cuda() for x in inputs(*sizes, dtype=dtype, seed=seed)]


def _near(a, b):
    """Within the roundings of two backends, for values of normal numbers."""
    torch.testing.assert_close(a, b, rtol=0, atol=0.02 if a.dtype == torch.float16 else 0.1)


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_long_sequences_agree_with_plain_tensor_operations(backend, head_dim):
    """Many tiles, and as many blocks as have to share a processor; lengths that end inside a tile."""
    for dtype in DTYPES:
        for qo_len, kv_len in ((1000, 1000), (333, 2049), (4000, 77)):
            q, k, v = _inputs(qo_len, kv_len, 8, 2, head_dim, dtype=dtype)
            for options in ({}, {"causal": True}, {"causal": True, "window_left": 100, "logits_soft_cap": 5.0}):
                out, lse = single_prefill(q, k, v, return_lse=True, backend=backend, **options)
                want, want_lse = single_prefill(q, k, v, return_lse=True, backend="torch", **options)
                _near(want, out)
                torch.testing.assert_close(want_lse, lse, rtol=1e-4, atol=1e-3)


def test_torch_takes_its_own_attention_where_it_may():
    """scaled_dot_product_attention gives what the plain operations give."""
    for dtype in DTYPES:
        for options in ({"qo_len": 300, "kv_len": 500}, {"qo_len": 300, "kv_len": 300, "causal": True}):
            sizes = (options.pop("qo_len"), options.pop("kv_len"), 8, 2, 128)
            q, k, v = _inputs(*sizes, dtype=dtype)
            want = single_prefill(q, k, v, backend="torch", **options)
            _near(want, single_prefill(q, k, v, backend="torch", sdpa=True, **options))


@pytest.mark.parametrize("backend", COMPILED)
def test_nothing_is_allocated_beyond_the_results(backend):
    """With out given and no LSE wanted there is no device memory to allocate; a new out and LSE are all that is."""
    q, k, v = _inputs(500, 700, 4, 2, 128)
    mask = torch.ones(500, 700, dtype=torch.bool, device="cuda").tril_()
    slopes = torch.ones(4, device="cuda")
    out = torch.empty_like(q)
    calls = (
        {"causal": True},
        {"custom_mask": mask, "alibi_slopes": slopes, "logits_soft_cap": 2.0},
        {"window_left": 9},
    )
    for options in calls:
        single_prefill(q, k, v, out=out, backend=backend, **options)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.max_memory_allocated()
        single_prefill(q, k, v, out=out, backend=backend, **options)
        single_prefill(out, k, v, out=out, backend=backend, **options)
        assert before == torch.cuda.max_memory_allocated()
        results = single_prefill(q, k, v, return_lse=True, backend=backend, **options)
        size = sum(-(-x.numel() * x.element_size() // 512) * 512 for x in results)
        assert before + size == torch.cuda.max_memory_allocated()


@pytest.mark.parametrize("backend", COMPILED)
def test_graph_capture_replays_on_new_values(backend):
    """A captured call reads what the tensors hold when it is replayed."""
    q, k, v = _inputs(100, 200, 4, 2, 128)
    mask = torch.ones(100, 200, dtype=torch.bool, device="cuda")
    single_prefill(q, k, v, custom_mask=mask, return_lse=True, backend=backend)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = single_prefill(q, k, v, custom_mask=mask, return_lse=True, backend=backend)
    for x, new in zip((q, k, v), _inputs(100, 200, 4, 2, 128, seed=9)):
        x.copy_(new)
    mask.tril_(50)
    graph.replay()
    torch.cuda.synchronize()
    want, want_lse = single_prefill(q, k, v, custom_mask=mask, return_lse=True, backend=backend)
    assert torch.equal(want, out)
    assert torch.equal(want_lse, lse)


def test_the_first_call_of_all_may_be_captured():
    """Building and loading a kernel does not break a capture."""
    from impls.single_prefill import cuda

    q, k, v = _inputs(10, 20, 4, 2, 64)
    cuda._kernel.cache_clear()
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(q)
    with torch.cuda.graph(graph):
        single_prefill(q, k, v, window_left=3, out=out, backend="cuda")
    graph.replay()
    want, lse = single_prefill(q, k, v, window_left=3, return_lse=True, backend="cuda")
    assert torch.equal(want, out)
    check((out, lse), q, k, v, window_left=3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_work_goes_to_the_current_stream(backend):
    """A call waits for what its stream did before: the input is written by a slow kernel on the same stream."""
    q, k, v = _inputs(300, 300, 4, 4, 64)
    late = _inputs(300, 300, 4, 4, 64, seed=5)
    want = single_prefill(late[0], k, v, causal=True, backend=backend)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        q.copy_(late[0])
        actual = single_prefill(q, k, v, causal=True, backend=backend)
    stream.synchronize()
    assert torch.equal(want, actual)


@pytest.mark.parametrize("backend", COMPILED)
def test_several_threads_and_streams_at_once(backend):
    """Threads that launch the same kernel on streams of their own don't touch each other's arguments or results."""
    problems = [_inputs(100 + 10 * i, 200, 4, 2, 64, dtype=DTYPES[i % 2], seed=i) for i in range(8)]
    wants = [single_prefill(*problem, window_left=10 * i, backend=backend) for i, problem in enumerate(problems)]
    torch.cuda.synchronize()
    wrong = []

    def work(i):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    if not torch.equal(wants[i], single_prefill(*problems[i], window_left=10 * i, backend=backend)):
                        wrong.append(i)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("backend", COMPILED)
def test_tensors_on_a_device_that_is_not_current(backend):
    """The call runs on the tensors' device, and the current device is as before."""
    q, k, v = (x.to("cuda:1") for x in inputs(9, 20, 2, 1))
    actual = single_prefill(q, k, v, return_lse=True, backend=backend)
    assert torch.cuda.current_device() == 0
    check(actual, q, k, v)


def test_auto_takes_the_cuda_backend():
    """On a supported GPU, "auto" is "cuda"."""
    from impls.single_prefill import cuda, dispatch

    assert dispatch._backend("auto", torch.device("cuda:0")) is cuda


@pytest.mark.parametrize("backend", COMPILED)
def test_offsets_beyond_two_to_the_31_elements(backend):
    """Rows and heads of q, k, v, out and a mask that lie far from the first are found, and nothing else is written."""
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs 40 GB of device memory")
    row = (1 << 28) + 64
    q, k, v = _inputs(17, 17, 2, 1, 64)
    memory = torch.zeros(17 * row, dtype=torch.float16, device="cuda")
    far = [
        memory.as_strided(x.shape, (row, row // 2 if x.shape[1] > 1 else 64, 1), 256 * i)
        for i, x in enumerate((q, k, v, q))
    ]
    for view, x in zip(far, (q, k, v)):
        view.copy_(x)
    want, want_lse = single_prefill(q, k, v, causal=True, return_lse=True, backend=backend)
    out, lse = single_prefill(*far[:3], causal=True, out=far[3], return_lse=True, backend=backend)
    assert torch.equal(want, out)
    assert torch.equal(want_lse, lse)
    mask = memory.view(torch.bool).as_strided((17, 17), (row, 1), 8192)
    mask.copy_(torch.ones(17, 17, dtype=torch.bool).tril())
    _near(want, single_prefill(q, k, v, custom_mask=mask, backend=backend))


@pytest.mark.parametrize("backend", COMPILED)
def test_more_than_two_to_the_31_outputs(backend):
    """out alone has 2^31 elements and some: its last rows are right."""
    if torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("needs 12 GB of device memory")
    rows = (1 << 17) + 3
    _, k, v = _inputs(1, 40, 1, 1, 64)
    q = _inputs(1, 1, 256, 1, 64)[0].expand(rows, 256, 64)
    out = single_prefill(q, k, v, causal=False, backend=backend)
    want = single_prefill(q[:1].contiguous(), k, v, backend=backend)
    for row in (0, rows // 2, rows - 1):
        assert torch.equal(want[0], out[row])
