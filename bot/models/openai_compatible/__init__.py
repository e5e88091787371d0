"""Public module for model plugins whose server speaks OpenAI's API: connections, calls and handlers.

A plugin subclasses `CompatibleClient` with its endpoints, and `make_handlers` returns its handlers.
"""

from bot.models.openai_compatible.client import (
    CompatibleClient,
    complete,
    embed,
    list_entries,
    make_handlers,
    read_usage,
)
from bot.models.openai_compatible.server import OLLAMA_OWNER, OPENAI_HOST, Connection, Endpoint, ollama_window

__all__ = [
    "OLLAMA_OWNER",
    "OPENAI_HOST",
    "CompatibleClient",
    "Connection",
    "Endpoint",
    "complete",
    "embed",
    "list_entries",
    "make_handlers",
    "ollama_window",
    "read_usage",
]
