"""Configuration: frozen dataclasses, flags generated from them, and one pure `resolve()`."""
