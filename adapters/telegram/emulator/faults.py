"""Fault injection: responses that reject, arrive late, are broken or never come."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.testing import FaultResponse


@dataclass(slots=True)
class Fault(FaultResponse):
    """Fails calls of the method `match`, or all calls with `*`."""

    required_parameter: str = ""  # only calls with this parameter fail
    skip_first: int = 0  # number of matching calls that succeed first

    def applies_to(self, method: str, parameters: Mapping[str, Any]) -> bool:
        """Return whether a call fails; call it once per request."""
        is_match = self.match in ("*", method) and (
            not self.required_parameter or self.required_parameter in parameters
        )
        if is_match and self.skip_first:
            self.skip_first -= 1
            return False
        return self.times > 0 and is_match


def build_refusal(code: int, description: str, **parameters: Any) -> dict[str, Any]:
    """Return an error response in Telegram's format."""
    body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    return {**body, "parameters": parameters} if parameters else body


def too_many_requests(method: str, retry_after: Any, *, times: int = 1, skip_first: int = 0) -> Fault:
    """Return a fault with Telegram's rate-limit response."""
    text = f"Too Many Requests: retry after {retry_after}"
    return Fault(method, 429, build_refusal(429, text, retry_after=retry_after), times=times, skip_first=skip_first)


def refuse_markup(method: str = "sendMessage", *, times: int = 1) -> Fault:
    """Return a fault with Telegram's response to invalid entities."""
    text = "Bad Request: can't parse entities: unsupported start tag"
    return Fault(method, 400, build_refusal(400, text), times=times, required_parameter="entities")
