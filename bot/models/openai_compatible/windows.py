"""Context windows on servers of one's own, from what llama.cpp, Ollama and LM Studio report beside OpenAI's API.

Sources: llama.cpp's tools/server/README.md (`/props`), Ollama's docs/api.md (`/api/show`, `/api/ps`), LM Studio's
"REST API v0" (`/api/v0/models`).
"""

import re
from collections.abc import Iterable
from typing import Any

from bot.errors import ModelError
from bot.models.openai_compatible.server import Connection, member

OLLAMA_OWNER = "library"
DEFAULT_OLLAMA_WINDOW = 4096  # `num_ctx` where neither the model nor the server sets it
NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
CONTEXT_LENGTH = ".context_length"  # after the name of the architecture


async def find_window(connection: Connection, model: str, owner: str) -> tuple[int | None, bool]:
    """Return how many tokens a server gives to a prompt and its answer, and whether that is final.

    None if it does not say. Only the servers of these three are asked: `owner` is what the list of models says of who
    made this one. Ollama knows it only when the model is in memory.
    """
    root = str(connection.sdk.base_url).rstrip("/").removesuffix("/v1")
    if owner == "llamacpp":
        props = await _fetch(connection, f"{root}/props")
        return _first_count([member(props, "default_generation_settings", "n_ctx")]), True
    if owner == OLLAMA_OWNER:
        if loaded := _loaded_window(await _fetch(connection, f"{root}/api/ps"), model):
            return loaded, True
        return ollama_window(await _fetch(connection, f"{root}/api/show", {"model": model})), False
    if owner.replace("-", "_") == "organization_owner":
        listed = member(await _fetch(connection, f"{root}/api/v0/models"), "data")
        entries = [entry for entry in listed if member(entry, "id") == model] if isinstance(listed, list) else []
        return _first_count(member(entry, "loaded_context_length") for entry in entries), True
    return None, True


async def _fetch(connection: Connection, url: str, body: dict[str, Any] | None = None) -> Any:
    try:
        return await connection.fetch_url(url, "description", body)
    except ModelError:  # an old version may not have this path
        return None


def ollama_window(shown: Any) -> int | None:
    """Return the context window that Ollama will give to a model, from its description; None without one."""
    info = member(shown, "model_info")
    pairs = info.items() if isinstance(info, dict) else ()
    trained = _first_count(value for key, value in pairs if str(key).endswith(CONTEXT_LENGTH))
    named = NUM_CTX.search(str(member(shown, "parameters") or ""))
    return None if trained is None else min(trained, int(named[1]) if named else DEFAULT_OLLAMA_WINDOW)


def _loaded_window(running: Any, model: str) -> int | None:
    """Return the context window of a model that Ollama has in memory; None if it has not."""
    entries = member(running, "models")
    named = [entry for entry in entries if member(entry, "name") == model] if isinstance(entries, list) else []
    return _first_count(member(entry, "context_length") for entry in named)


def _first_count(values: Iterable[object]) -> int | None:
    return next((value for value in values if type(value) is int and value > 0), None)
