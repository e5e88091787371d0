"""Models from Ollama: on this machine, on another one, or in its cloud."""

from bot import Plugin
from plugins.ollama.models import HANDLERS, OllamaClient, OllamaSettings, privacy_statement

plugin = Plugin(
    "ollama",
    "Text, embeddings and descriptions of pictures from Ollama.",
    models=HANDLERS,
    services=[OllamaClient],
    settings=OllamaSettings,
    privacy_statement=privacy_statement,
)
