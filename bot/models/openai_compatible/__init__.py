"""Public module for model plugins whose server speaks OpenAI's API: connections and calls.

A plugin subclasses `CompatibleClient` with its endpoints, and its handlers call `complete` and the other functions
here.
"""

from bot.models.openai_compatible.answers import list_entries
from bot.models.openai_compatible.client import (
    CompatibleClient,
    complete,
    describe_image,
    embed,
    generate_image,
    synthesize_speech,
    transcribe,
)
from bot.models.openai_compatible.server import OPENAI_HOST, Connection, Endpoint

__all__ = [
    "OPENAI_HOST",
    "CompatibleClient",
    "Connection",
    "Endpoint",
    "complete",
    "describe_image",
    "embed",
    "generate_image",
    "list_entries",
    "synthesize_speech",
    "transcribe",
]
