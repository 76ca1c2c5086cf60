"""What a gateway says of itself: models, health, readiness, metrics, version, configuration, load."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import Unavailable
from octavo.gateway.frontend import Frontend
from octavo.gateway.http.error import json_response
from octavo.gateway.job import ModelCard
from octavo.version import __version__


class StatusRoutes:
    """Handlers of the GET paths."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def models(self) -> Response:
        return json_response({"object": "list", "data": [_card(card) for card in self._frontend.models()]})

    async def model(self, request: Request) -> Response:
        name = self._frontend.model.check_name(request.path_params["model"])
        return json_response(next(_card(card) for card in self._frontend.models() if card.id == name))

    async def health(self) -> Response:
        """This process works; says nothing of workers."""
        return Response(status_code=200)

    async def ready(self) -> Response:
        if not await self._frontend.is_ready():
            raise Unavailable("no worker is ready", retry_after_s=1.0)
        return json_response({"status": "ready"})

    async def metrics(self) -> Response:
        streams, metrics = self._frontend.streams, self._frontend.metrics
        text, content_type = metrics.render(streams.num_resends, streams.num_duplicates, streams.num_pauses)
        return Response(text, media_type=None, headers={"content-type": content_type})

    async def version(self) -> Response:
        return json_response({"version": __version__})

    async def server_info(self) -> Response:
        return json_response(await self._frontend.server_info())

    async def load(self) -> Response:
        return json_response({"server_load": len(self._frontend.streams)})


def _card(card: ModelCard) -> dict[str, object]:
    return {
        "id": card.id,
        "object": "model",
        "created": card.created_unix_s,
        "owned_by": "octavo",
        "root": card.root,
        "parent": None,
        "max_model_len": card.max_model_len,
    }
