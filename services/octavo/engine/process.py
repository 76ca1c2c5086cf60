"""The engine process: `python -m octavo.engine.process --config-fd N`, started by a worker's front.

It loads and builds the engine (declared phases with limits), tests it, and runs the loop.  It dies with the front: by
the parent-death signal, and because the pipe from the front closes.  Exit code 0 only after `Shutdown`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from octavo.config.engine import EngineConfig
from octavo.engine.launch import EngineLaunch, decode
from octavo.engine.loop import EngineLoop, LoopEngine
from octavo.engine.threads import limit_spinning
from octavo.errors import InternalError, OctavoError
from octavo.heartbeat import HeartbeatWriter
from octavo.kv.record import WorkerRecord
from octavo.obs.log import setup
from octavo.request import FINISH_ERROR, Emission, Request, SequenceInput
from octavo.sampling_params import SamplingParams
from octavo.wire.channel import EngineChannel
from octavo.wire.message import EngineFault, EngineReady, PhaseNotice, StepDone

logger = logging.getLogger("octavo.engine.process")

PR_SET_PDEATHSIG = 1
SELF_TEST_LIMIT_S = 120.0
SELF_TEST_TOKENS = 2
PROGRESS_STEP = 0.02

Notify = Callable[[str, float, float, str], None]
Built = tuple[LoopEngine, WorkerRecord]


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when the front ends; ends it now if the front is already gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise InternalError(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:
        os._exit(1)


def build_real(config: EngineConfig, *, beat: Callable[[], None], notify: Notify) -> Built:
    """Resolve the model and build the engine (imports torch)."""
    limit_spinning()
    from octavo.engine.build import build_engine
    from octavo.hub.resolve import resolve_model

    model = config.model
    files = resolve_model(
        model.model,
        tokenizer=model.tokenizer,
        revision=model.revision,
        generation_config=model.generation_config,
        load_format=model.load_format,
        progress=lambda detail, fraction: notify("loading", fraction * 0.5, 0.0, detail),
    )
    return build_engine(config, files, beat=beat, notify=notify)


def find_builder(name: str) -> Callable[..., Built]:
    """The builder named `module:function`, or the real one."""
    if not name:
        return build_real
    module, _, function = name.partition(":")
    builder: Any = getattr(importlib.import_module(module), function)
    return builder


def self_test(engine: LoopEngine, record: WorkerRecord, beat: Callable[[], None]) -> None:
    """Generate two tokens; raises `InternalError` when they do not come or are outside the vocabulary."""
    params = SamplingParams(temperature=0.0, seed=0, max_tokens=SELF_TEST_TOKENS, ignore_eos=True)
    engine.add_request(Request("self-test", 1, [0, 1, 2, 3], params, [SequenceInput(0)]))
    seen: list[Emission] = []
    while engine.has_unfinished_requests():
        beat()
        seen += engine.step()
    tokens = [token for emission in seen for token in emission.token_ids]
    failed = next((e.error for e in seen if e.finish_reason == FINISH_ERROR), None)
    if failed is not None:
        raise InternalError(f"self-test: {failed.message}")
    if len(tokens) != SELF_TEST_TOKENS or not all(0 <= t < record.vocab_size for t in tokens):
        raise InternalError(f"self-test: got tokens {tokens}, expected {SELF_TEST_TOKENS} below {record.vocab_size}")
    engine.check_integrity()


def serve(launch: EngineLaunch, channel: EngineChannel, heartbeat: HeartbeatWriter) -> int:
    """Build, test, run; returns the exit code."""

    last = ("", -1.0)

    def notify(phase: str, progress: float, limit_s: float, detail: str) -> None:
        nonlocal last
        limit_s = limit_s or launch.load_timeout_s
        heartbeat.enter(phase, limit_s)
        if phase != last[0] or progress >= last[1] + PROGRESS_STEP:
            last = (phase, progress)
            channel.send(PhaseNotice(phase, progress, limit_s, detail))

    notify("loading", 0.0, launch.load_timeout_s, "starting")
    engine, record = find_builder(launch.builder)(launch.engine, beat=heartbeat.beat, notify=notify)
    try:
        notify("self_test", 0.0, SELF_TEST_LIMIT_S, "")
        self_test(engine, record, heartbeat.beat)
        # What was loaded lives for ever: keep the collector from walking it at every full pass.
        gc.collect()
        gc.freeze()
        heartbeat.enter("ready", 0.0)
        channel.send(EngineReady(record))
        channel.send(StepDone([], engine.stats()))
        return EngineLoop(engine, channel, heartbeat).run()
    finally:
        engine.close()


def main(argv: list[str]) -> int:
    if len(argv) != 2 or argv[0] != "--config-fd":
        print("usage: python -m octavo.engine.process --config-fd N (started by octavo worker)", file=sys.stderr)
        return 2
    with os.fdopen(int(argv[1]), "rb") as file:
        launch = decode(file.read())
    die_with_parent(launch.parent_pid)
    # Ctrl-C and supervisors signal the whole process group; the front decides when the engine ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    setup("engine", launch.log_level, launch.log_format)
    heartbeat = HeartbeatWriter(launch.heartbeat_fd)
    channel = EngineChannel(launch.address, launch.parent_fd, heartbeat.beat)
    try:
        return serve(launch, channel, heartbeat)
    except OctavoError as error:
        logger.error("engine fault: %s", error.message)
        channel.send(EngineFault(error.detail()))
    except MemoryError as error:
        channel.send(EngineFault(InternalError(f"out of memory: {error}").detail()))
    except Exception as error:
        logger.exception("engine fault")
        channel.send(EngineFault(InternalError(f"{type(error).__name__}: {error}").detail()))
    finally:
        channel.close()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
