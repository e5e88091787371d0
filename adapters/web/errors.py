"""Errors of requests: an HTTP status, a stable code and a message."""

from collections.abc import Mapping
from contextvars import ContextVar

from bot import TemporaryError
from bot.platform import HttpProblem as HttpProblem  # here for the modules of the adapter, beside what builds it
from bot.store import StoreUnavailable

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
CODE_AND_MESSAGE_BY_STATUS = {
    400: ("bad_request", "the request is not valid HTTP"),
    404: ("not_found", "nothing exists at this address"),
    405: ("method_not_allowed", "this address does not support the method"),
    413: ("too_large", "the body is too large"),
    417: ("expectation_failed", "only 100-continue is supported in Expect"),
    500: ("internal_error", "internal error; the server's log has more"),
}


def build_refusal(status: int, headers: Mapping[str, str] | None = None) -> HttpProblem:
    """Return the problem for an HTTP status."""
    code, message = CODE_AND_MESSAGE_BY_STATUS.get(status, ("refused", "the request is refused"))
    return HttpProblem(status, code, message, headers)


def build_wrong_token() -> HttpProblem:
    """Return a 401 for a wrong token."""
    return HttpProblem(401, "unauthorized", "this is not the token", {"WWW-Authenticate": "Bearer"})


def build_not_found(label: str, name: object) -> HttpProblem:
    """Return a 404; also for things that exist but may not be read."""
    return HttpProblem(404, "not_found", f"there is no {label} {str(name)[:100]!r}")


def build_stopping() -> HttpProblem:
    """Return a 503 for a process that is stopping."""
    return HttpProblem(
        503,
        "stopping",
        "the bot is stopping: send the request again after the restart, with the same idempotency key",
        {"Retry-After": "5"},
    )


def build_too_many_messages(count: int) -> HttpProblem:
    """Return a 429 for a token of which `count` messages have no outcome yet."""
    return HttpProblem(
        429,
        "too_many_messages",
        f"{count} messages of this token are still being answered: wait for an answer and send it again",
        {"Retry-After": "5"},
    )


def build_unavailable(error: TemporaryError) -> HttpProblem:
    """Return a 503 for a temporary failure; details are only logged."""
    code = error.cause if isinstance(error, StoreUnavailable) else "try_again"
    return HttpProblem(
        503,
        code,
        "temporarily unavailable: send the request again later, with the same idempotency key",
        {"Retry-After": "10"},
    )
