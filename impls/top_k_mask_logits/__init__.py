"""top_k_mask_logits: keep each row's k largest logits, make the others -inf. The contract is in `top_k_mask_logits`' docstring.

The backends are the modules `cuda`, `triton` and `torch`, imported when they are first used.
"""

# Nothing here may use the name `torch` or `triton`: importing a backend binds it to that submodule in this namespace.
from .dispatch import BACKENDS, top_k_mask_logits, top_k_mask_logits_

__all__ = ["BACKENDS", "top_k_mask_logits", "top_k_mask_logits_"]
