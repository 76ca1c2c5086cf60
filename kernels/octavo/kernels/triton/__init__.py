"""Kernels in Triton for GPUs.  Modules whose name starts with `_` import triton; the others import nothing heavy."""
