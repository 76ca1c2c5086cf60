"""Choosing tokens: one file per concern, pure numpy; noise is a function of its arguments."""
