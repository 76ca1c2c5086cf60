"""Moving KV between workers: the pure transfer machine, its messages, digests, connector bases and connectors."""
