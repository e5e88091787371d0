"""A model on this machine: it answers as the chat completions of OpenAI do, in a thread of its own."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from bot.testing import model_answer

DECIDES = "should say something now"


class LoopbackModel(ThreadingHTTPServer):
    """The server; `prompts` has what it was asked. It decides to answer, and answers with `write` of the prompt."""

    daemon_threads = True

    def __init__(self, write: Callable[[str], str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.write = write
        self.prompts: list[str] = []

    @property
    def url(self) -> str:
        """Its address, as OPENAI_BASE_URL takes it."""
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes
    server: LoopbackModel

    def do_POST(self) -> None:
        """Answer a request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = str(request["messages"][-1]["content"])
        self.server.prompts.append(prompt)
        is_decision = DECIDES in prompt
        decision = "<response><reasoning>so</reasoning><action>RESPOND</action></response>"
        text = decision if is_decision else model_answer(self.server.write(prompt))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}
        body = json.dumps(
            {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def loopback_model(write: Callable[[str], str]) -> Iterator[LoopbackModel]:
    """Run the server."""
    server = LoopbackModel(write)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
