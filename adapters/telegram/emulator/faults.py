"""What may go wrong, on purpose: answers that refuse, arrive late, broken, or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.testing import FaultResponse


@dataclass(slots=True)
class Fault(FaultResponse):
    """Goes wrong with calls of the method `match`; of all, where that is `*`."""

    required_parameter: str = ""  # goes wrong with calls that have this parameter
    skip_first: int = 0  # so many of them go well before

    def applies_to(self, method: str, parameters: Mapping[str, Any]) -> bool:
        """Tell whether a call goes wrong; to be asked once a call."""
        is_match = self.match in ("*", method) and (
            not self.required_parameter or self.required_parameter in parameters
        )
        if is_match and self.skip_first:
            self.skip_first -= 1
            return False
        return self.times > 0 and is_match


def build_refusal(code: int, description: str, **parameters: Any) -> dict[str, Any]:
    """Make a refusal as Telegram words it."""
    body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    return {**body, "parameters": parameters} if parameters else body


def too_many_requests(method: str, retry_after: Any, *, times: int = 1, skip_first: int = 0) -> Fault:
    """Answer as Telegram does where it was asked too much."""
    text = f"Too Many Requests: retry after {retry_after}"
    return Fault(
        method, 429, build_refusal(429, text, retry_after=retry_after), times=times, skip_first=skip_first
    )


def refuse_markup(method: str = "sendMessage", *, times: int = 1) -> Fault:
    """Answer as Telegram does where it cannot make sense of the entities."""
    text = "Bad Request: can't parse entities: unsupported start tag"
    return Fault(method, 400, build_refusal(400, text), times=times, required_parameter="entities")
