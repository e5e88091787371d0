"""What the API's errors mean here."""

import re
from datetime import UTC, datetime

import anthropic

from bot import ModelBusy, ModelError, ModelRefused, PromptTooLong, read_retry_after

REFUSALS = (400, 401, 402, 403, 404, 405, 413, 422)
NO_CREDIT = frozenset({"contract_spend_limit_reached", "enforced_spend_limit_reached"})
TOO_LONG = re.compile(
    r"prompt is too long|exceed\w* (?:the )?context|context (?:limit|window)", re.IGNORECASE
)


def explained(error: anthropic.AnthropicError, host: str, key: str) -> ModelError:
    """Make an error of ours that says what to do, and no secret."""
    if isinstance(error, anthropic.APITimeoutError):
        return ModelBusy(f"anthropic: no connection to {host} in time")
    if isinstance(error, anthropic.APIConnectionError):
        return ModelBusy(f"anthropic: no answer from {host}: {_brief(error.message, key)}")
    if not isinstance(error, anthropic.APIStatusError):
        return ModelError(f"anthropic: {_brief(str(error), key)}")
    status, said = error.status_code, _brief(error.api_message or error.message, key)
    if status == 401:
        return ModelRefused(
            f"anthropic: {host} refused the key in ANTHROPIC_API_KEY (401): put in a valid one"
        )
    if status == 404:
        return ModelRefused(
            f"anthropic: {host} does not know the model or path (404): check ANTHROPIC_LARGE_MODEL, "
            "ANTHROPIC_SMALL_MODEL and ANTHROPIC_BASE_URL"
        )
    if status == 402 or error.error_code in NO_CREDIT:
        return ModelRefused(f"anthropic: {host} has no credit left for the key: {said}")
    if status in REFUSALS:
        is_long = status in (400, 413) and TOO_LONG.search(said)
        kind = PromptTooLong if is_long else ModelRefused
        return kind(f"anthropic: {host} refused the request ({status}): {said}")
    told = read_retry_after(error.response.headers, datetime.now(UTC))
    return ModelBusy(f"anthropic: {host} is not able to answer now ({status}): {said}", retry_after=told)


def _brief(said: str, key: str) -> str:
    return " ".join(said.replace(key, "[the key]").split())[:200]
