"""Kernels: torch, and nothing else of Octavo.  Backends register by name and say why they cannot run."""
