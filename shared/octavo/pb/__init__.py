"""Generated protobuf stubs (`make proto`).  Only `octavo.rpc` may import them."""
