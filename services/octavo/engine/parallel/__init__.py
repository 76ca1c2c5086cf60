"""Ranks: the executor that drives N of them, and their communication."""
