"""The Python SDK: `Client` and `AsyncClient` speak a gateway's gRPC port.

    from octavo.client import Client

    with Client("127.0.0.1:8001") as client:
        for chunk in client.stream("Once upon a time", max_tokens=32):
            print(chunk.text, end="", flush=True)
        print(client.chat([{"role": "user", "content": "Hello"}]).text)

No torch is needed.  Failures raise the typed errors of `octavo.errors`.
"""

from octavo.client.aio import AsyncClient
from octavo.client.output import Choice, Output
from octavo.client.sync import Client
from octavo.rpc.public import Chunk, Health, ModelInfo, Usage

__all__ = ["AsyncClient", "Choice", "Chunk", "Client", "Health", "ModelInfo", "Output", "Usage"]
