"""The gRPC client SDK."""
