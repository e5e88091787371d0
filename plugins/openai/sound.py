"""Recordings: written down, and spoken."""

import mimetypes

import openai
from pydantic import BaseModel

from bot import (
    Agent,
    ModelError,
    ModelType,
    SpeechRequest,
    SpeechResult,
    TextResult,
    TranscriptionRequest,
    Usage,
    model,
)
from plugins.openai.answers import Count, Perhaps, read_as
from plugins.openai.client import Client
from plugins.openai.settings import model_of, serves

HEARS, SPEAKS = "TRANSCRIPTION", "TTS"
# What the system may not know, or calls by a name that the API does not take.
SUFFIXES = {"audio/ogg": ".ogg", "audio/mp4": ".m4a", "audio/x-m4a": ".m4a", "audio/mpeg": ".mp3"}


class Tokens(BaseModel):
    """What writing down took, where it is counted in tokens."""

    input_tokens: Count
    output_tokens: Count


class Transcript(BaseModel):
    """What a recording says."""

    text: str
    usage: Perhaps[Tokens] = None


@model(ModelType.TRANSCRIPTION, when=serves(HEARS))
async def transcription(agent: Agent, request: TranscriptionRequest) -> TextResult:
    """Have a recording written down."""
    client = agent.services[Client]
    name, line = model_of(client.settings, HEARS), client.line(HEARS)
    kind = request.content_type.partition(";")[0].strip().lower()
    suffix = SUFFIXES.get(kind) or mimetypes.guess_extension(kind) or ".ogg"
    with line.explaining():
        answer = await line.sdk.audio.transcriptions.with_raw_response.create(
            model=name,
            file=(f"heard{suffix}", request.audio, kind or "audio/ogg"),
            response_format="json",
        )
    heard = read_as(Transcript, answer.content, name, "transcript")
    took = Usage(heard.usage.input_tokens, heard.usage.output_tokens) if heard.usage else None
    return TextResult(heard.text, name, took)


@model(ModelType.TEXT_TO_SPEECH, when=serves(SPEAKS))
async def speech(agent: Agent, request: SpeechRequest) -> SpeechResult:
    """Have a text spoken."""
    client = agent.services[Client]
    own, line = client.settings, client.line(SPEAKS)
    name = model_of(own, SPEAKS)
    with line.explaining():
        answer = await line.sdk.audio.speech.with_raw_response.create(
            model=name,
            voice=request.voice or own.openai_tts_voice,
            input=request.text,
            instructions=own.openai_tts_instructions or openai.omit,
            response_format="mp3",
        )
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith(("text/", "application/json")):
        raise ModelError(f"openai: {name} gave {kind} where speech was asked for")
    return SpeechResult(answer.content, kind if kind.startswith("audio/") else "audio/mpeg", name)
