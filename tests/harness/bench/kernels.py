"""Kernels for the bench's tests, which find them as a user's file: right ones, and one for each way not to have a time."""

import os
import time

import torch

calls = 0


def right(logits, k, *, out=None):
    least = logits.float().sort(1, descending=True).values[:, k - 1 : k]
    masked = torch.where(logits >= least, logits, -torch.inf)
    return masked if out is None else out.copy_(masked)


def fresh(logits, k):
    """Cannot work in place."""
    return right(logits, k)


def wrong(logits, k, *, out=None):
    """Keeps one too few."""
    return right(logits, k - 1, out=out)


def changes(logits, k):
    """Spoils what it has read."""
    result = right(logits, k)
    logits[0, 0] += 1
    return result


def raises(logits, k):
    raise RuntimeError("no such kernel\nand a second line")


def dies(logits, k):
    os._exit(3)


def hangs(logits, k):
    time.sleep(1000)


def fades(logits, k):
    """Right for the first calls only, so that what is judged is right and what is timed is wrong."""
    global calls
    calls += 1
    return right(logits, k if calls < 8 else k - 1)


def waits(logits, k):
    """Right, once the file `go` is there; says by a file that it waits."""
    open("waiting", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
    return right(logits, k)


def waits_for_device(logits, k):
    """Right, but no graph can hold it."""
    result = right(logits, k)
    float(result[0, 0])
    return result
