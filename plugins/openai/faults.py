"""What the API's errors mean here."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime

import openai

from bot import ModelBusy, ModelError, ModelRefused, PromptTooLong, read_retry_after
from plugins.openai.settings import Place

REFUSALS = (400, 401, 402, 403, 404, 405, 413, 415, 422)
NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
CONTENT = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context|context (?:length|size|window)"
    r"|prompt is too long",
    re.IGNORECASE,
)


def is_of_content(error: Exception) -> bool:
    """Tell whether a request was refused for what is said in it."""
    return isinstance(error, openai.APIStatusError) and error.code in CONTENT


def words_of(error: openai.APIStatusError) -> str:
    """Give what a server says of its error: in the API's form, in another, or in none."""
    body = error.body
    if isinstance(body, dict):
        body = next((body[name] for name in ("message", "error", "detail") if body.get(name)), body)
    if not body:
        body = error.response.text
    return body if isinstance(body, str) else json.dumps(body, default=str)


def explained(error: openai.OpenAIError, place: Place, host: str, secrets: Iterable[str]) -> ModelError:
    """Make an error of ours that says what to do, and no secret."""
    if isinstance(error, openai.APITimeoutError):
        return ModelBusy(f"openai: no connection to {host} in time")
    if isinstance(error, openai.APIConnectionError):
        return ModelBusy(f"openai: no answer from {host}: {_brief(error.message, secrets)}")
    if not isinstance(error, openai.APIStatusError):
        return ModelError(f"openai: {_brief(str(error), secrets)}")
    status, said = error.status_code, _brief(words_of(error), secrets)
    if status == 401:
        return ModelRefused(f"openai: {host} refused the key in {place.key_name} (401): put in a valid one")
    if status == 404:
        return ModelRefused(
            f"openai: {host} does not know the model or path (404): check the model's name in "
            f"OPENAI_…_MODEL and that {place.url_name} ends in /v1"
        )
    if status == 429 and (error.code in NO_CREDIT or error.type in NO_CREDIT):
        return ModelRefused(f"openai: {host} has no credit left for the key in {place.key_name}: {said}")
    if status in REFUSALS:
        is_long = status in (400, 413) and TOO_LONG.search(f"{error.code} {error.type} {said}")
        kind = PromptTooLong if is_long else ModelRefused
        return kind(f"openai: {host} refused the request ({status}): {said}")
    told = read_retry_after(error.response.headers, datetime.now(UTC))
    return ModelBusy(f"openai: {host} is not able to answer now ({status}): {said}", retry_after=told)


def _brief(said: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        said = said.replace(secret, "[the key]")
    return " ".join(said.split())[:200]
