"""Weights from files, or made up, into a model."""

from octavo.engine.model.loader.load import load

__all__ = ["load"]
