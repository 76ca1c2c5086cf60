"""Connectors that need no device, and the bases that every connector builds on."""
