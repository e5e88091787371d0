"""What the API of OpenAI looks like on the wire, and an agent that speaks it."""

from typing import Any

from bot import Character, Plugin
from bot.models import ModelUnavailable, TextRequest
from bot.store import Store
from bot.testing import ScriptedModel, running_agent
from plugins.openai import plugin

KEY = "sk-a-key-of-the-tests"
DONE = "data: [DONE]\n\n"


def open_harness(
    url: str, *others: Plugin, store: Store | None = None, character: Character | None = None, **settings: str
) -> Any:
    """Run an agent whose only large model is that server's."""

    def never(request: TextRequest) -> str:
        raise ModelUnavailable("the second model was asked")

    given = {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_LARGE_MODEL": "large",
        "OPENAI_SMALL_MODEL": "small",
        **settings,
    }
    return running_agent(plugin, *others, model=ScriptedModel(never), settings=given, store=store, character=character)


def delta(**content: Any) -> dict[str, Any]:
    """Make an event of a stream that adds to the answer."""
    return {"model": "large-1", "choices": [{"index": 0, "delta": content, "finish_reason": None}]}


def finish(reason: str = "stop") -> dict[str, Any]:
    """Make the event that ends an answer."""
    return {"model": "large-1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def counted(tokens_in: int = 100, tokens_out: int = 20) -> dict[str, Any]:
    """Make the event that says what an answer took."""
    return {"choices": [], "usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}}


def completion(content: str | None = "Hello.", finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    """Make a whole answer."""
    message_body = {"role": "assistant", "content": content, **message}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "large-1",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message_body}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
