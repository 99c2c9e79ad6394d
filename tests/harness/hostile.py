"""Implementations of top_k_mask_logits that do to their process what no function should. Loaded as hostile.py:name."""

import os
import signal
import sys
import threading
import time

import torch

from tests.harness.making import right

SEMANTICS = {"ties": "all"}


def good(logits, k, *, out=None):
    return right(logits, k, out=out)


def good_(logits, k):
    return right(logits, k, out=logits)


def returns_zeros(logits, k, *, out=None):
    return torch.zeros_like(logits)


def segfaults(logits, k, *, out=None):
    os.kill(os.getpid(), signal.SIGSEGV)


def aborts(logits, k, *, out=None):
    print("last words", flush=True)
    os.abort()


def ends_the_process(logits, k, *, out=None):
    os._exit(0)


def hangs(logits, k, *, out=None):
    while True:
        time.sleep(0.05)


def hangs_deaf(logits, k, *, out=None):
    """Not even the signal that asks for its stack is heard."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
    while True:
        time.sleep(0.05)


def prints(logits, k, *, out=None):
    sys.stdout.write("x" * 300_000 + "\n")
    sys.stderr.write("y" * 300_000 + "\n")
    os.write(1, b"z" * 300_000)
    return right(logits, k, out=out)


def exits(logits, k, *, out=None):
    sys.exit(3)


def interrupts(logits, k, *, out=None):
    raise KeyboardInterrupt


def leaves_threads(logits, k, *, out=None):
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return right(logits, k, out=out)


def dies_later(logits, k, *, out=None):
    """Right, and its process dies a moment after the answer."""
    threading.Timer(0.2, os._exit, (9,)).start()
    return right(logits, k, out=out)


def dies_when_poked(logits, k, *, out=None):
    """Right, and the next call of torch.empty kills the process: what a corrupted heap does."""
    torch.empty = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGABRT)
    return right(logits, k, out=out)


def changes_folder(logits, k, *, out=None):
    os.chdir("/")
    os.environ.clear()
    return right(logits, k, out=out)


def remembers(logits, k, *, out=None):
    """Right at the first call of a process, wrong at every later call with other sizes."""
    remembers.shape = getattr(remembers, "shape", logits.shape)
    return right(logits, k, out=out) if logits.shape == remembers.shape else torch.zeros_like(logits)
