"""The router process."""

from __future__ import annotations

import asyncio
import logging

from octavo.config.command import RouterService as RouterSettings
from octavo.errors import OctavoError
from octavo.lifecycle import StopSignal, run_service
from octavo.obs.http import ProbeServer, text
from octavo.obs.notify import Notifier
from octavo.router.policy import make_policy
from octavo.router.service import RouterService
from octavo.rpc.router import add_router
from octavo.rpc.server import GrpcServer
from octavo.wire.load import LoadSubscriber

logger = logging.getLogger(__name__)

STOP_GRACE_S = 1.0


async def serve(config: RouterSettings, info_json: str, stop: StopSignal, notifier: Notifier) -> int:
    """Run a router until `stop`; returns 0."""
    settings = config.router
    service = RouterService(
        make_policy(settings.routing_policy),
        settings.worker_timeout_s,
        info_json,
        follow=lambda addresses: loads.follow(addresses),
    )
    loads = LoadSubscriber(service.on_report)
    server = GrpcServer(settings.router_host, settings.router_port)
    add_router(server, service, service)
    routes = {
        "/health": lambda: text(200, "ok\n"),
        "/ready": lambda: text(200, "ok\n"),
        "/metrics": service.render_metrics,
    }
    http = ProbeServer(settings.router_host, settings.router_metrics_port, routes)
    try:
        grpc_address, http_address = await server.start(), await http.start()
        await server.set_serving(True)
        logger.info("router listens on %s (gRPC) and %s (HTTP)", grpc_address, http_address)
        notifier.listening(grpc=grpc_address, http=http_address)
        notifier.ready()
        watch = asyncio.create_task(service.watch(), name="watch")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait({watch, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if watch.done():
            watch.result()
        watch.cancel()
    finally:
        await server.set_serving(False)
        await server.stop(STOP_GRACE_S)
        await http.close()
        loads.close()
    return 0


def run(config: RouterSettings, info_json: str) -> int:
    """Blocking; SIGTERM and SIGINT end it with 0.  `info_json` is the resolved configuration."""
    notifier = Notifier.from_env()
    try:
        return run_service(lambda stop: serve(config, info_json, stop, notifier))
    except OctavoError as error:
        logger.error("router: %s", error.message)
        notifier.failed(error.message)
        return 1
