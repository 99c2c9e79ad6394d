"""Kernels broken on purpose, one bug each, and correct ones that look odd: what proves that the harness finds bugs."""
