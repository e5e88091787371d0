"""Text and the description of pictures from Anthropic; it makes no vectors."""

from bot import Plugin
from plugins.anthropic.client import Client
from plugins.anthropic.models import description, large, small
from plugins.anthropic.settings import AnthropicSettings, lacks, promise

plugin = Plugin(
    "anthropic",
    "Text from Anthropic, and what pictures show; vectors come from another plugin.",
    models=[small, large, description],
    services=[Client],
    settings=AnthropicSettings,
    missing_settings=lacks,
    privacy_statement=promise,
)
