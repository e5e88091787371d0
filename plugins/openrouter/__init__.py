"""Models of many makers from OpenRouter, with one key."""

from bot import Plugin
from plugins.openrouter.models import (
    HANDLERS,
    OpenRouterClient,
    OpenRouterSettings,
    missing_settings,
    privacy_statement,
)

plugin = Plugin(
    "openrouter",
    "Text, embeddings and descriptions of pictures from OpenRouter.",
    models=HANDLERS,
    services=[OpenRouterClient],
    settings=OpenRouterSettings,
    missing_settings=missing_settings,
    privacy_statement=privacy_statement,
)
