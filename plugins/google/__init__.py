"""Gemini models from Google, through its own SDK."""

from bot import Plugin
from plugins.google.client import GoogleClient, GoogleSettings, missing_settings, privacy_statement
from plugins.google.models import describe_image, embed, large, medium, small

plugin = Plugin(
    "google",
    "Text, embeddings and descriptions of pictures from Google's Gemini models.",
    models=[small, medium, large, embed, describe_image],
    services=[GoogleClient],
    settings=GoogleSettings,
    missing_settings=missing_settings,
    privacy_statement=privacy_statement,
)
