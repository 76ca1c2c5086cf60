"""`octavo gateway`: the process."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path

from octavo.config.command import GatewayService
from octavo.errors import InvalidInput
from octavo.gateway.edge_model import EdgeModel
from octavo.gateway.frontend import Frontend
from octavo.gateway.link import LinkListener, WorkerLink
from octavo.gateway.placement import Routers
from octavo.gateway.server import GatewayServer
from octavo.hub.generation import GenerationDefaults
from octavo.hub.resolve import resolve_model
from octavo.kv.record import WorkerRecord
from octavo.lifecycle import StopSignal, run_service
from octavo.obs.notify import Notifier
from octavo.rpc.placement import ServerInfo
from octavo.rpc.router import RouterClient
from octavo.rpc.session_client import WorkerSession
from octavo.rpc.worker import WorkerClient
from octavo.text.tokenizer import load_tokenizer

logger = logging.getLogger(__name__)


def run(config: GatewayService, info_json: str) -> int:
    """Serve until SIGTERM or SIGINT, drain, return 0.  Raises typed errors for what is wrong at the start."""
    if not config.fleet.router:
        raise InvalidInput("router: got none; name at least one router as host:port", param="router")
    notifier = Notifier.from_env()
    model = load_model(config, notifier)
    return run_service(lambda stop: _serve(config, model, info_json, notifier, stop))


def load_model(config: GatewayService, notifier: Notifier) -> EdgeModel:
    """Tokenizer, template and defaults of the configured model; no weights."""
    settings = config.model
    files = resolve_model(
        settings.model,
        tokenizer=settings.tokenizer,
        revision=settings.revision,
        generation_config=settings.generation_config,
        load_format=settings.load_format,
        need_weights=False,
        progress=notifier.progress,
    )
    return EdgeModel(
        files,
        load_tokenizer(files),
        GenerationDefaults.from_files(files, settings.generation_config),
        settings.served_model_name or (settings.model,),
        max_model_len=settings.max_model_len,
        chat_template=_read_template(config.gateway.chat_template),
    )


def _read_template(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"chat_template: got {path!r}; must be a readable file ({error})", param="chat_template"
        ) from None


async def _serve(config: GatewayService, model: EdgeModel, info_json: str, notifier: Notifier, stop: StopSignal) -> int:
    gateway_id = f"{socket.gethostname()}:{os.getpid()}"
    routers = Routers([RouterClient(address) for address in config.fleet.router])

    async def open_link(record: WorkerRecord, listener: LinkListener) -> WorkerLink:
        return await WorkerSession.open(record, listener, gateway_id, frontend.incarnation)

    frontend = Frontend(config.gateway, model, routers, open_link, worker_info, info_json)
    server = GatewayServer(frontend)
    await server.start()
    notifier.listening(http=server.http_address, grpc=server.grpc_address)
    logger.info("serving HTTP on %s and gRPC on %s", server.http_address, server.grpc_address)
    announce = asyncio.create_task(_announce(server, notifier))
    await stop.wait()
    announce.cancel()
    await server.drain(lambda: stop.is_urgent)
    return 0


async def _announce(server: GatewayServer, notifier: Notifier) -> None:
    await server.became_ready.wait()
    notifier.ready()


async def worker_info(record: WorkerRecord) -> ServerInfo:
    """Ask a worker for its resolved configuration."""
    client = WorkerClient(record.grpc_address)
    try:
        return await client.info()
    finally:
        await client.close()
