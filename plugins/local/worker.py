"""Runs one model file with the server of llama.cpp; `plugins.local.server` starts it as a program.

It reads a line of JSON with the parameters from standard input and writes a line with the server's address to standard
output. It ends when standard input ends, so also when the bot is killed. Errors of llama.cpp go to standard error.
"""

import json
import os
import signal
import sys
import time
from typing import Any

import xllamacpp  # type: ignore[import-untyped] # it ships no types

POOLING_KEY = b".pooling_type"  # in the metadata of a model that says how its vectors are made
METADATA_BYTES = 1 << 20  # the words of the model follow
LOG_SECONDS = 0.5  # in which a thread of llama.cpp has written why a file cannot be loaded


def start_server(values: dict[str, Any]) -> Any:
    """Return a running server. Raises RuntimeError if the file cannot be loaded."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = values["path"]
    parameters.model_alias = {values["name"]}
    parameters.api_keys = [values["key"]]
    parameters.n_parallel = values["slots"]
    parameters.n_ctx = values["context"] * values["slots"]
    parameters.n_threads_http = values["slots"] + 2
    parameters.verbosity = 1  # errors
    parameters.ui = False
    parameters.cache_ram_mib = 0  # no copies of prompts beside the slots: the memory stays what the settings say
    parameters.sse_ping_interval = 10  # seconds; shows during a long prompt that the server is alive
    parameters.cpuparams.n_threads = values["threads"]
    if values["gpu_layers"] is not None:
        parameters.n_gpu_layers = values["gpu_layers"]
    if values["is_embedding"]:
        parameters.embedding = True
        parameters.n_batch = parameters.n_ubatch = values["context"]  # a text is embedded in one piece
        with open(values["path"], "rb") as file:
            if POOLING_KEY not in file.read(METADATA_BYTES):  # a model for text
                parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return xllamacpp.Server(parameters)


def main() -> None:
    """Serve until standard input ends."""
    values = json.loads(sys.stdin.readline())
    try:
        server = start_server(values)
    except RuntimeError:
        time.sleep(LOG_SECONDS)
        os._exit(1)
    # The server ends at these signals, but the bot decides when: it first finishes its answers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    print(server.listening_address, flush=True)  # noqa: T201 - the protocol with the bot
    sys.stdin.read()
    os._exit(0)  # at once: nothing is to be saved


if __name__ == "__main__":
    main()
