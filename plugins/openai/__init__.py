"""Models from OpenAI, or from any server that speaks its API: Ollama, vLLM, LM Studio, OpenRouter."""

from bot import Plugin
from plugins.openai.client import Client
from plugins.openai.pictures import description, image
from plugins.openai.settings import OpenAISettings, lacks, promise
from plugins.openai.sound import speech, transcription
from plugins.openai.text import large, medium, small
from plugins.openai.vectors import embedding

plugin = Plugin(
    "openai",
    "Text, vectors, pictures and speech from OpenAI, or from any server that speaks its API.",
    models=[small, medium, large, embedding, image, description, transcription, speech],
    services=[Client],
    settings=OpenAISettings,
    lacks=lacks,
    privacy=promise,
)
