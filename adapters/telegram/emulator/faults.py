"""What may go wrong, on purpose: answers that refuse, arrive late, broken, or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.testing import FaultyAnswer


@dataclass(slots=True)
class Fault(FaultyAnswer):
    """Goes wrong with calls of the method `match`; of all, where that is `*`."""

    only_with: str = ""  # goes wrong with calls that have this parameter
    after: int = 0  # so many of them go well before

    def concerns(self, method: str, parameters: Mapping[str, Any]) -> bool:
        """Tell whether a call goes wrong; to be asked once a call."""
        is_meant = self.match in ("*", method) and (not self.only_with or self.only_with in parameters)
        if is_meant and self.after:
            self.after -= 1
            return False
        return self.times > 0 and is_meant


def refusal(code: int, description: str, **parameters: Any) -> dict[str, Any]:
    """Make a refusal as Telegram words it."""
    body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    return {**body, "parameters": parameters} if parameters else body


def too_many(method: str, retry_after: Any, *, times: int = 1, after: int = 0) -> Fault:
    """Answer as Telegram does where it was asked too much."""
    text = f"Too Many Requests: retry after {retry_after}"
    return Fault(method, 429, refusal(429, text, retry_after=retry_after), times=times, after=after)


def markup_refused(method: str = "sendMessage", *, times: int = 1) -> Fault:
    """Answer as Telegram does where it cannot make sense of the entities."""
    text = "Bad Request: can't parse entities: unsupported start tag"
    return Fault(method, 400, refusal(400, text), times=times, only_with="entities")
