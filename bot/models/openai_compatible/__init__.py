"""Public module for model plugins whose server speaks OpenAI's API: connections and calls.

A plugin subclasses `CompatibleClient` with its endpoints, and its handlers call `complete` and the other functions
here.
"""

from bot.models.openai_compatible.chat import complete
from bot.models.openai_compatible.client import CompatibleClient
from bot.models.openai_compatible.connection import OPENAI_HOST, Connection, Endpoint
from bot.models.openai_compatible.media import describe_image, embed, generate_image, synthesize_speech, transcribe

__all__ = [
    "OPENAI_HOST",
    "CompatibleClient",
    "Connection",
    "Endpoint",
    "complete",
    "describe_image",
    "embed",
    "generate_image",
    "synthesize_speech",
    "transcribe",
]
