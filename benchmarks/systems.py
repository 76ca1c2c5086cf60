"""The systems that are measured side by side: Octavo in process, Octavo through HTTP, transformers.

Each is loaded once and idle while another is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Protocol

import psutil
from harness import Prompts

from octavo.engine.threads import SPIN_COUNT

START_LIMIT_S = 300
STOP_LIMIT_S = 60


class System(Protocol):
    """Answers prompts of token ids with exactly `num_out` greedy tokens each."""

    name: str

    def generate(self, prompts: Prompts, num_out: int) -> None: ...

    def close(self) -> None: ...


class InProcess:
    """`octavo.llm.LLM`: the bare engine."""

    name = "octavo LLM"

    def __init__(self, model: str, **flags: object) -> None:
        from octavo.llm import LLM

        self.llm = LLM(model, **flags)

    def generate(self, prompts: Prompts, num_out: int) -> None:
        from octavo.llm import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=num_out, ignore_eos=True)
        done = self.llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
        assert all(len(r.outputs[0].token_ids) == num_out for r in done)

    def close(self) -> None:
        self.llm.close()


def role_of(command: list[str]) -> str:
    """The role that a service's command line names; "other" for a process that is no service."""
    match command[1:4]:
        case ["-m", "octavo.cli", role]:
            return role
        case ["-m", "octavo.engine.process", *_]:
            return "engine"
    return "other"


def process_cpu_s(pid: int) -> float:
    """CPU time of the living threads of a process, from the scheduler: exact where `times` counts ticks of 10 ms."""
    nanoseconds = [int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(nanoseconds) / 1e9


class Served:
    """A cluster of `octavo up`, asked over HTTP with one streaming connection per prompt."""

    name = "octavo HTTP"

    def __init__(self, model: str, *flags: str) -> None:
        self.model = model
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        command = [sys.executable, "-m", "octavo.cli", "up", model, "--port", str(self.port), *flags]
        self.process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_LIMIT_S
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the cluster did not become ready")
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5).read()
        except OSError:
            return False
        return True

    def generate(self, prompts: Prompts, num_out: int) -> None:
        asyncio.run(self._all(prompts, num_out))

    async def _all(self, prompts: Prompts, num_out: int) -> None:
        await asyncio.gather(*(self._one(p, num_out) for p in prompts))

    async def closed_loop(
        self, prompts: Prompts, num_out: int, concurrency: int, first_ms: list[float] | None = None
    ) -> None:
        """All prompts, `concurrency` at any time; the times to each first token are added to `first_ms`."""
        waiting = iter(prompts)

        async def client() -> None:
            for prompt in waiting:
                await self._one(prompt, num_out, first_ms)

        await asyncio.gather(*(client() for _ in range(concurrency)))

    async def _one(self, prompt: list[int], num_out: int, first_ms: list[float] | None = None) -> None:
        body = json.dumps(
            {
                "model": self.model,
                "prompt": prompt,
                "max_tokens": num_out,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        start = time.perf_counter()
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        reply = b""
        while b"data:" not in reply and not reader.at_eof():
            reply += await reader.read(1 << 16)
        if first_ms is not None:
            first_ms.append((time.perf_counter() - start) * 1e3)
        reply += await reader.read(-1)
        writer.close()
        if b'"completion_tokens":%d' % num_out not in reply.replace(b": ", b":"):
            raise RuntimeError(f"unexpected answer: {reply[:300]!r} … {reply[-300:]!r}")

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time used so far by the processes of each role: gateway, router, worker (the front), engine."""
        out: dict[str, float] = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            role = role_of(child.cmdline())
            out[role] = out.get(role, 0.0) + process_cpu_s(child.pid)
        return out

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(STOP_LIMIT_S)


class Transformers:
    """transformers' `generate`, one request at a time, with the same weights and dtype, in a process of its own."""

    name = "transformers"

    def __init__(self, weights: Path, cache: Path, dtype: str) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(Path(__file__).with_name("peer.py")), str(weights), str(cache), dtype]
        # The peer's threads wait as Octavo's do: with OpenMP's own setting a busy machine slows it tenfold, which
        # would flatter every ratio.
        env = {"GOMP_SPINCOUNT": SPIN_COUNT, **os.environ}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self._hear("ready")

    def _hear(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line != word:
            raise RuntimeError(f"transformers said {line!r}, not {word!r}")

    def generate(self, prompts: Prompts, num_out: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"prompts": prompts, "num_out": num_out}) + "\n")
        self.process.stdin.flush()
        self._hear("done")

    def close(self) -> None:
        self.process.communicate(timeout=STOP_LIMIT_S)
