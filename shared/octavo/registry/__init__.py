"""Fleet membership: the registry interface and its backends."""
