"""Reports made by hand."""

from harness.bench.report import Floor, Report, Result, Settings
from harness.bench.timing import Timing
from harness.bench.workload import Cost

MASK, PREFILL = "top_k_mask_logits", "single_prefill"


def timing(microseconds, spread=0.01, method="graph"):
    median = microseconds * 1e-6
    return Timing(median, median * (1 - spread / 2), median * (1 + spread / 2), 50, 4, method)


def result(name, cold, warm=None, *, workload="w", operator=MASK, extra=0, **more):
    return Result(
        operator,
        workload,
        name,
        "measured",
        "",
        timing(cold),
        timing(warm) if warm else None,
        extra,
        "every row",
        **more,
    )


def failed(name, status="wrong", why="wrong_set: out[0, 1] | is odd", *, workload="w", operator=MASK):
    return Result(operator, workload, name, status, why)


def floor(workload="w", copy=10.0, warm=5.0, *, operator=MASK, size=10**7, flops=0.0, rate=0.0, against="", dtype=""):
    cost = Cost(size, size, flops, dtype)
    return Floor(operator, workload, cost, timing(copy), timing(warm) if warm else None, rate, against)


def report(floors=None, results=None, *, baseline="rival", machine=None, complete=True):
    """Two workloads of a mask, the second compared with the first, and one of attention."""
    floors = floors or [
        floor(),
        floor("w values=two", against="w", warm=None),
        floor("a <long> prompt", operator=PREFILL, flops=4e9, rate=8e14, dtype="float16"),
    ]
    results = results or [
        result("mine", 12.5, 6.0),
        result("rival", 50.0, 20.0, extra=3 << 20),
        result("mine", 15.0, workload="w values=two"),
        failed("rival", workload="w values=two"),
        result("mine", 20.0, operator=PREFILL, workload="a <long> prompt", ratio=0.5),
        failed("rival", "unsupported", "no kernel", operator=PREFILL, workload="a <long> prompt"),
    ]
    settings = Settings({MASK: baseline, PREFILL: baseline}, 0.2, 0)
    return Report(machine or {"gpu": "One", "torch": "2.11"}, settings, floors, results, complete)
