"""Embeddings from a small model on this computer that a Python package brings, without a key."""

from bot import Plugin
from plugins.embeddings.model import EmbeddingModel, EmbeddingSettings, embed_texts, missing_settings

plugin = Plugin(
    "embeddings",
    "Embeddings in a hundred languages from a small model on this computer, without a key.",
    models=[embed_texts],
    services=[EmbeddingModel],
    settings=EmbeddingSettings,
    missing_settings=missing_settings,
)
