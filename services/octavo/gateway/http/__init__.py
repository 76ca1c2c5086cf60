"""The OpenAI-compatible HTTP edge: thin over `octavo.gateway.frontend`."""
