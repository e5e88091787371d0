"""How an answer is written: JSON from a model, and never a secret in it."""

import json
from collections.abc import Collection, Mapping

from aiohttp import web
from pydantic import BaseModel

from adapters.web.bodies import ErrorAnswer, ErrorBody
from adapters.web.problems import REQUEST_ID, Problem

REDACTED = "[redacted]"


class Answers:
    """Writes what leaves the server; `secrets` are values that never do."""

    def __init__(self, secrets: Collection[str]) -> None:
        escaped = (json.dumps(secret, ensure_ascii=False)[1:-1] for secret in secrets)
        self._secrets = sorted({*secrets, *escaped}, key=len, reverse=True)

    def text(self, body: BaseModel) -> str:
        """Write a model as one line of JSON."""
        return self.cleared(body.model_dump_json())

    def json(
        self, body: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        """Answer a request with a model."""
        return web.Response(
            text=self.text(body), status=status, headers=headers, content_type="application/json"
        )

    def refusal(self, problem: Problem) -> web.Response:
        """Answer a request that is refused."""
        body = ErrorBody(code=problem.code, message=problem.message, request_id=REQUEST_ID.get())
        return self.json(ErrorAnswer(error=body), status=problem.status, headers=problem.headers)

    def cleared(self, text: str) -> str:
        """Take the secrets out of a text."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text
