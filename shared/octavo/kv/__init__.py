"""What services must agree on about KV: block hashes, layouts, capability records, events."""
