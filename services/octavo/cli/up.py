"""`octavo up` and `octavo serve`: a whole cluster on this machine, as one command."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from octavo.cli.cluster import ClusterPlan, Machine, child_env, fixed_ports, plan_cluster
from octavo.cli.host import check_port, free_memory_bytes, has_gpu, num_cores, visible_gpus
from octavo.cli.screen import Screen, ScreenStream, how_to_call
from octavo.cli.service import announce, read_settings
from octavo.cli.supervisor import Supervisor
from octavo.config.command import ClusterService
from octavo.config.setting import settings_of
from octavo.engine.requirement import check_engine_is_installed
from octavo.hub.files import ModelFiles
from octavo.obs.log import setup
from octavo.obs.notify import Notifier
from octavo.obs.progress import ProgressDisplay


def run_cluster(name: str, summary: str, argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Start everything, wait, end everything; the exit code.  Typed errors come before any process is started."""
    notifier = Notifier.from_env()  # before the services' environment is made: they get descriptors of their own
    resolved = read_settings(ClusterService, name, summary, argv, env)
    config = resolved.config
    display = ProgressDisplay()
    is_text = config.log.log_format == "text" or (config.log.log_format == "auto" and sys.stderr.isatty())
    stream = ScreenStream(display, is_terminal=sys.stderr.isatty())
    setup(name, config.log.log_level, "text" if is_text else "json", stream)  # type: ignore[arg-type]
    announce(resolved)
    check_engine_is_installed()
    machine = Machine(num_cores(), free_memory_bytes(), tuple(visible_gpus(env)), has_gpu(env))
    for host, port, setting in fixed_ports(plan_cluster(config, machine, "")):
        check_port(host, port, setting)
    with display:
        files = find_model(config, display)
        if files.revision and not config.model.revision:
            # Later lives load what this one found, whatever the hub's main revision has become.
            config = replace(config, model=replace(config.model, revision=files.revision))
        plan = plan_cluster(config, machine, resolved.info_json())
        return asyncio.run(_supervise(plan, config, files, Screen(display, is_text=is_text), env, notifier))


async def _supervise(
    plan: ClusterPlan,
    config: ClusterService,
    files: ModelFiles,
    screen: Screen,
    env: Mapping[str, str],
    notifier: Notifier,
) -> int:
    served = (*config.model.served_model_name, config.model.model)[0]
    has_template = bool(config.gateway.chat_template) or has_chat_template(files.tokenizer_source)

    def on_ready(addresses: Mapping[str, str]) -> None:
        screen.started()
        print(how_to_call(served, addresses, has_chat_template=has_template), flush=True)
        notifier.listening(**addresses)
        notifier.ready()

    def on_failure(message: str) -> None:
        screen.started()
        print(f"octavo: error: {message}", file=sys.stderr, flush=True)
        notifier.failed(message)

    settings = {setting.env for setting in settings_of(ClusterService)} | {"OCTAVO_CONFIG", "OCTAVO_ROUTER"}
    supervisor = Supervisor(
        plan,
        child_env(env, settings),
        screen,
        can_restart=config.cluster.restart,
        startup_timeout_s=config.cluster.startup_timeout_s,
        drain_s=config.gateway.shutdown_timeout_s,
        on_ready=on_ready,
        on_failure=on_failure,
    )
    return await supervisor.run()


def find_model(config: ClusterService, display: ProgressDisplay) -> ModelFiles:
    """Resolve the model once for all services, with its download shown; what they could not read is refused here."""
    from octavo.hub.resolve import resolve_model
    from octavo.text import gguf_tokenizer

    model = config.model
    files = resolve_model(
        model.model,
        tokenizer=model.tokenizer,
        revision=model.revision,
        generation_config=model.generation_config,
        load_format=model.load_format,
        progress=lambda what, fraction: display.update("model", what, fraction),
    )
    source = files.tokenizer_source
    if source is not None and source.suffix == ".gguf":
        gguf_tokenizer.check(source)
    return files


def has_chat_template(tokenizer_source: Path | None) -> bool:
    """Whether the model can chat, looked up without building its tokenizer."""
    if tokenizer_source is None:
        return False
    if tokenizer_source.is_file():
        if tokenizer_source.suffix != ".gguf":
            return False
        from octavo.hub.gguf import GGUFFile

        return "tokenizer.chat_template" in GGUFFile.open(tokenizer_source).metadata
    if any((tokenizer_source / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    settings = tokenizer_source / "tokenizer_config.json"
    return settings.is_file() and '"chat_template"' in settings.read_text(encoding="utf-8")
