"""Per-rank execution: slots on the device, step inputs, the attention context, sampling."""
