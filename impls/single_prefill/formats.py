"""What selects a binary, and what becomes of sm_scale when q·k is accumulated in float16."""

import math
from collections.abc import Mapping

import torch

DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
BY_NAME = {name: dtype for dtype, name in DTYPES.items()}
HEAD_DIMS = (64, 128, 256)
MASKS = ("none", "causal", "custom")
FLAGS = ("fp16_qk", "window", "soft_cap", "alibi")


def unsupported(params: Mapping[str, object], choices: int = 1) -> str | None:
    """Why no backend takes `params`, or None. What `params` leaves out is not judged; `choices`: the length of TUNING."""
    allowed = {"dtype": tuple(BY_NAME), "head_dim": HEAD_DIMS, "mask": MASKS, "tuning": tuple(range(choices))}
    for name, values in (*allowed.items(), *((flag, (False, True)) for flag in FLAGS)):
        value = params.get(name, values[0])
        if value not in values or isinstance(value, bool) != isinstance(values[0], bool):
            return f"{name} must be one of {', '.join(map(str, values))}, not {value!r}"
    if params.get("fp16_qk") and params.get("dtype") == "bfloat16":
        return "use_fp16_qk_reduction needs float16 inputs"
    return None


def split_scale(sm_scale: float) -> tuple[float, float]:
    """(power, rest) with sm_scale = power * rest: the largest power of two that is no more than 1 or |sm_scale|.

    With float16 sums q is multiplied by `power` first, so that large scores have room in 65504; 0.0 is split into (1, 0).
    """
    if not sm_scale:
        return 1.0, 0.0
    power = math.ldexp(1.0, min(0, math.frexp(sm_scale)[1] - 1))
    return power, sm_scale / power
