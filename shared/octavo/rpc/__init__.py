"""gRPC: servers, channels, and the one module that converts protobuf messages (`octavo.rpc.convert`)."""
