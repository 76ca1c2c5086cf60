"""Text without torch or transformers: tokenizers, chat templates, incremental detokenizing, stop strings."""
