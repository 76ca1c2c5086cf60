"""Model files and weight loaders."""
