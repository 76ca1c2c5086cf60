"""The systems that are measured side by side: Octavo in process, Octavo through HTTP, transformers."""

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

START_LIMIT_S = 300


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

    async def _one(self, prompt: list[int], num_out: int) -> None:
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
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        reply = await reader.read(-1)
        writer.close()
        if b'"completion_tokens":%d' % num_out not in reply.replace(b": ", b":"):
            raise RuntimeError(f"unexpected answer: {reply[:300]!r} … {reply[-300:]!r}")

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time used so far by each kind of process in the cluster."""
        out: dict[str, float] = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            words = child.cmdline()
            role = next((w for w in ("gateway", "router", "worker", "octavo.engine.process") if w in words), "other")
            times = child.cpu_times()
            out[role] = out.get(role, 0.0) + times.user + times.system
        return out

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


class Transformers:
    """transformers' `generate`, one request at a time, the same weights in bfloat16."""

    name = "transformers"

    def __init__(self, gguf: Path, cache: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, GgufConfig

        folder = cache / f"{gguf.stem}-bf16"
        if not (folder / "config.json").exists():
            quantization = GgufConfig(dequantize=True)
            load = AutoModelForCausalLM.from_pretrained
            model = load(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=quantization)
            model.save_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        torch.set_num_threads(os.cpu_count() or 1)

    def generate(self, prompts: Prompts, num_out: int) -> None:
        import torch

        with torch.inference_mode():
            for prompt in prompts:
                ids = torch.tensor([prompt])
                out = self.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=num_out,
                    min_new_tokens=num_out,
                    do_sample=False,
                    pad_token_id=0,
                )
                assert out.shape[1] == len(prompt) + num_out

    def close(self) -> None:
        del self.model
