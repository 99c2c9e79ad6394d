"""single_prefill: attention of one sequence's queries over its keys. `single_prefill_with_kv_cache` states the contract.

The backends are the modules `cuda`, `triton` and `torch`, imported when they are first used.
"""

# Nothing here may use the name `torch` or `triton`: importing a backend binds it to that submodule in this namespace.
from .call import LogitsTransform
from .dispatch import BACKENDS, single_prefill_with_kv_cache

single_prefill = single_prefill_with_kv_cache

__all__ = ["BACKENDS", "LogitsTransform", "single_prefill", "single_prefill_with_kv_cache"]
