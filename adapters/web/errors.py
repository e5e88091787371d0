"""What a request can come to instead of an answer: a status, a stable code, and a sentence."""

from collections.abc import Mapping
from contextvars import ContextVar

from bot import BotError, TryAgain
from bot.store import StoreUnavailable

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    417: "expectation_failed",
    500: "internal_error",
}
MESSAGES = {
    400: "this is not HTTP as the server takes it",
    404: "there is nothing at this address",
    405: "this address does not take that method",
    413: "the body is larger than the server takes",
    417: "nothing but 100-continue can be expected here",
    500: "this is a fault of the server; its log says more",
}


class Problem(BotError):
    """A request that is refused; the message is shown to whoever sent it."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


def refused(status: int, headers: Mapping[str, str] | None = None) -> Problem:
    """Say in our words what aiohttp refuses, or what we could not do."""
    code = CODES.get(status, "refused")
    return Problem(status, code, MESSAGES.get(status, "the request is refused"), headers)


def not_found(what: str, name: object) -> Problem:
    """Say that something is not there; what exists but may not be seen is told the same."""
    return Problem(404, "not_found", f"there is no {what} {str(name)[:100]!r}")


def stopping() -> Problem:
    """Say that the process is about to end."""
    return Problem(
        503,
        "stopping",
        "the bot is stopping: send it again, with the same idempotency key, when it is back",
        {"Retry-After": "5"},
    )


def unavailable(error: TryAgain) -> Problem:
    """Say that it cannot be done just now; what is wrong, and where, is for the log alone."""
    code = error.cause if isinstance(error, StoreUnavailable) else "try_again"
    return Problem(
        503,
        code,
        "this cannot be done just now: send it again, with the same idempotency key, in a while",
        {"Retry-After": "10"},
    )
