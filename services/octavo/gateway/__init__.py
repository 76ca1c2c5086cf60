"""The HTTP and public gRPC edge; owns the streams."""
