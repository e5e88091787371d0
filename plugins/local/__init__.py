"""Language models from GGUF files, which llama.cpp runs on this computer, without a key or another program."""

from bot import Plugin
from plugins.local.models import LocalModels, embed_texts, large, small
from plugins.local.server import LocalSettings, missing_settings

plugin = Plugin(
    "local",
    "Text and embeddings from a model file (GGUF) on this computer.",
    models=[small, large, embed_texts],
    services=[LocalModels],
    settings=LocalSettings,
    missing_settings=missing_settings,
)
