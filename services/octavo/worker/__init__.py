"""The torch-free front of engine workers: registration, sessions, token path, health."""
