"""Places requests on workers; advises, owns nothing that cannot be rebuilt."""
