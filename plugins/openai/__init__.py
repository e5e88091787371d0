"""Models from OpenAI, or from any server that speaks its API: Ollama, vLLM, LM Studio, OpenRouter."""

from bot import Plugin
from plugins.openai.client import Client
from plugins.openai.media import description, image, speech, transcription
from plugins.openai.models import embedding, large, medium, small
from plugins.openai.settings import OpenAISettings, lacks, promise

plugin = Plugin(
    "openai",
    "Text, vectors, pictures and speech from OpenAI, or from any server that speaks its API.",
    models=[small, medium, large, embedding, image, description, transcription, speech],
    services=[Client],
    settings=OpenAISettings,
    missing_settings=lacks,
    privacy_statement=promise,
)
