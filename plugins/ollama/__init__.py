"""Models from Ollama: on this machine, on another one, or in its cloud."""

from bot import Plugin
from plugins.ollama.models import OllamaClient, describe_image, embed, large, medium, small
from plugins.ollama.settings import OllamaSettings, privacy_statement

plugin = Plugin(
    "ollama",
    "Text, embeddings and descriptions of pictures from Ollama.",
    models=[small, medium, large, embed, describe_image],
    services=[OllamaClient],
    settings=OllamaSettings,
    privacy_statement=privacy_statement,
)
