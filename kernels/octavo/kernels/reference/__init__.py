"""References: plain torch, written to be read.  Everything else must equal them within rounding."""
