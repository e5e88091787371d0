"""What a request can come to instead of an answer: a status, a stable code, and a sentence."""

from collections.abc import Mapping
from contextvars import ContextVar

from bot import BotError, TemporaryError
from bot.store import StoreUnavailable

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
CODE_BY_STATUS = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    417: "expectation_failed",
    500: "internal_error",
}
MESSAGE_BY_STATUS = {
    400: "this is not HTTP as the server takes it",
    404: "there is nothing at this address",
    405: "this address does not take that method",
    413: "the body is larger than the server takes",
    417: "nothing but 100-continue can be expected here",
    500: "this is a fault of the server; its log says more",
}


class HttpProblem(BotError):
    """A request that is refused; the message is shown to whoever sent it."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


def build_refusal(status: int, headers: Mapping[str, str] | None = None) -> HttpProblem:
    """Say in our words what aiohttp refuses, or what we could not do."""
    code = CODE_BY_STATUS.get(status, "refused")
    return HttpProblem(status, code, MESSAGE_BY_STATUS.get(status, "the request is refused"), headers)


def build_not_found(label: str, name: object) -> HttpProblem:
    """Say that something is not there; what exists but may not be seen is told the same."""
    return HttpProblem(404, "not_found", f"there is no {label} {str(name)[:100]!r}")


def build_stopping() -> HttpProblem:
    """Say that the process is about to end."""
    return HttpProblem(
        503,
        "stopping",
        "the bot is stopping: send it again, with the same idempotency key, when it is back",
        {"Retry-After": "5"},
    )


def build_unavailable(error: TemporaryError) -> HttpProblem:
    """Say that it cannot be done just now; what is wrong, and where, is for the log alone."""
    code = error.cause if isinstance(error, StoreUnavailable) else "try_again"
    return HttpProblem(
        503,
        code,
        "this cannot be done just now: send it again, with the same idempotency key, in a while",
        {"Retry-After": "10"},
    )
