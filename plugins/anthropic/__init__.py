"""Text and descriptions of pictures from Anthropic; it has no embedding model."""

from bot import Plugin
from plugins.anthropic.client import (
    AnthropicSettings,
    Client,
    describe_image,
    large,
    missing_settings,
    privacy_statement,
    small,
)

plugin = Plugin(
    "anthropic",
    "Text and image descriptions from Anthropic; embeddings need another plugin.",
    models=[small, large, describe_image],
    services=[Client],
    settings=AnthropicSettings,
    missing_settings=missing_settings,
    privacy_statement=privacy_statement,
)
