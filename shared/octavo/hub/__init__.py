"""From a MODEL argument to files on disk: demo models, model hubs, local folders and GGUF files."""
