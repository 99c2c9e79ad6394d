"""What the Triton kernel for long rows does to rows that need each of its ways, under the interpreter's small tiles.

`TRITON_INTERPRET=1 python -m tests.impls.top_k_mask_logits.triton_paths` prints as JSON, for each row by name, the passes
("write", "read" and "radix"; the last pass of a row that was not written is not among them), and whether every answer was right.
"""

import json

import torch

from impls.top_k_mask_logits import top_k_mask_logits, top_k_mask_logits_, triton_kernels
from tests.impls.top_k_mask_logits.brute_force import DTYPES, bits, expected

VOCAB = 512
"""Four tiles of float32; the sample for a small k is half of it."""


def rows(dtype):
    """Name -> (row, k)."""
    ordinary = torch.randn(VOCAB, generator=torch.Generator().manual_seed(0))
    two = torch.where(torch.arange(VOCAB) % 3 == 0, 2.0, 1.0)
    # Where one lane's elements begin, tile by tile.
    lane = [128 * tile + 4 * (3 * tile % 8) for tile in range(4)]
    noted = ordinary.clone()
    noted[lane] = 10 + torch.arange(4.0)
    crowded = ordinary.clone()
    crowded[:16] = 10 + torch.arange(16.0) / 16  # between the sample's pieces of 32 elements
    many = ordinary.clone()
    for start in lane:  # twelve of one lane's, which can note eight
        many[start : start + 3] = 10 + torch.arange(3.0) / 4
    many[64:96] = 20 + torch.arange(32.0) / 32  # these hide from the sample
    many[192:224] = 40 + torch.arange(32.0) / 32
    strided = ordinary.clone()
    strided[::32] += 50
    missed = ordinary.clone()
    missed[96:192] += 100
    for name, row, k in (
        ("ordinary, small k", ordinary, 3),
        ("ordinary, large k", ordinary, 200),
        ("ordinary, k = vocab - 1", ordinary, VOCAB - 1),
        ("all equal, small k", torch.ones(VOCAB), 3),
        ("all equal, large k", torch.ones(VOCAB), 200),
        ("all -inf, small k", torch.full((VOCAB,), -torch.inf), 3),
        ("all -inf, large k", torch.full((VOCAB,), -torch.inf), 200),
        ("two values, small k", two, 3),
        ("two values, k at the step", two, 171),
        ("two values, k after the step", two, 172),
        ("ascending", ordinary.sort().values, 3),
        ("descending", ordinary.sort(descending=True).values, 3),
        ("all NaN", torch.full((VOCAB,), torch.nan), 3),
        ("large ones in one lane", noted, 3),
        ("large ones at a stride", strided, 3),
        ("large ones outside of the sample", crowded, 3),
        ("too many to note", many, 3),
        ("the sample is misleading", missed, 90),
        ("zeros of both signs", torch.where(two > 1, 0.0, -0.0), 3),
    ):
        yield name, row.to(dtype), k


def report():
    """Name -> the passes over a float32 row in place; and the names whose answer was wrong, for any dtype."""
    passes = []
    real = {name: getattr(triton_kernels, name) for name in ("stream", "radix_select")}

    def stream(*arguments):
        # WRITE is behind the three tensors' pointers, the two ends and the three bounds.
        passes.append("write" if arguments[7] else "read")
        return real["stream"](*arguments)

    def radix_select(*arguments):
        passes.append("radix")
        return real["radix_select"](*arguments)

    triton_kernels.stream, triton_kernels.radix_select = stream, radix_select
    ways, wrong = {}, []
    for dtype in DTYPES:
        for name, row, k in rows(dtype):
            passes.clear()
            logits = row[None].clone()
            want = expected(logits, k)
            top_k_mask_logits_(logits, k, backend="triton")
            if dtype == torch.float32:
                ways[name] = list(passes)
            fresh = top_k_mask_logits(row[None], k, backend="triton")
            if not (torch.equal(want, bits(logits)) and torch.equal(want, bits(fresh))):
                wrong.append(f"{name}, {dtype}")
    return {"ways": ways, "wrong": wrong}


if __name__ == "__main__":
    print(json.dumps(report()))
