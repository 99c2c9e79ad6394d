"""In place with k >= vocab, the kernels write nothing: the logits lie in pages that cannot be written.

The CUDA kernels run on the CPU here, from the same source as on a GPU, and Triton's under its interpreter. A write ends the
process, or is an error that the runtime reports; each attempt has a process of its own.
"""

import subprocess
import sys
from os import environ

import pytest

from impls.cuda_build import host
from tests.impls.running import ROOT

SCRIPT = """
import mmap, sys, warnings
import torch
from impls.top_k_mask_logits import top_k_mask_logits_

warnings.filterwarnings("ignore")  # torch has no read-only tensors, and says so
backend, batch, vocab, k = sys.argv[1], *map(int, sys.argv[2:5])
values = torch.randn(batch, vocab)
with open(sys.argv[5], "wb") as file:
    file.write(values.numpy().tobytes())
with open(sys.argv[5], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
logits = torch.frombuffer(pages, dtype=torch.float32).view(batch, vocab)
assert torch.equal(values, logits)
top_k_mask_logits_(logits, k, backend=backend)
top_k_mask_logits_(logits, torch.full((batch,), k), backend=backend)
"""

NO_GXX = host.unavailable()
BACKENDS = [pytest.param("cuda", marks=pytest.mark.skipif(NO_GXX is not None, reason=str(NO_GXX))), "triton"]


def _status(backend, batch, vocab, k, folder):
    arguments = [sys.executable, "-c", SCRIPT, backend, str(batch), str(vocab), str(k), str(folder / "logits")]
    environment = {**environ, "PYTHONPATH": str(ROOT)} | ({"TRITON_INTERPRET": "1"} if backend == "triton" else {})
    return subprocess.run(arguments, env=environment, capture_output=True, timeout=120, check=False).returncode


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("batch", "vocab"), [(3, 700), (1, 70000)])
def test_nothing_is_written_where_nothing_is_masked(backend, batch, vocab, tmp_path):
    """For k = vocab and beyond, a scalar's and a tensor's, in a row of one block and one of a cluster."""
    if backend == "triton":
        vocab = min(vocab, 1500)  # the interpreter's long rows begin after 512
    assert _status(backend, batch, vocab, vocab, tmp_path) == 0
    assert _status(backend, batch, vocab, vocab + 9, tmp_path) == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_write_does_not_go_unseen(backend, tmp_path):
    """With one element to mask, the same call fails."""
    assert _status(backend, 3, 700, 699, tmp_path) != 0
