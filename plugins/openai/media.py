"""Image, transcription and speech handlers."""

import base64
import binascii
import mimetypes
from typing import Annotated

import openai
from pydantic import BaseModel, Field

from bot import Agent, model
from bot.models import (
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    ModelError,
    ModelType,
    SpeechRequest,
    SpeechResult,
    TextResult,
    TranscriptionRequest,
    Usage,
)
from plugins.openai.chat import write
from plugins.openai.client import Client
from plugins.openai.responses import Count, Perhaps, read_as
from plugins.openai.settings import model_of, place_of, serves

DRAWS, DESCRIBES = "IMAGE", "IMAGE_DESCRIPTION"
QUESTION = "Describe this picture in a few sentences."
SIGNATURES = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"RIFF": "image/webp",
    b"GIF8": "image/gif",
}


class Picture(BaseModel):
    """A picture, in one of two ways."""

    url: Perhaps[str] = None
    b64_json: Perhaps[str] = None


class Pictures(BaseModel):
    """An answer to a request for a picture; only one is asked for."""

    data: Annotated[list[Picture], Field(min_length=1)]


@model(ModelType.IMAGE, when=serves(DRAWS))
async def image(agent: Agent, request: ImageRequest) -> ImageResult:
    """Have a picture drawn."""
    client = agent.services[Client]
    name, line = model_of(client.settings, DRAWS), client.line(DRAWS)
    size = "x".join(map(str, request.size)) if request.size else openai.omit
    with line.explaining():
        answer = await line.sdk.images.with_raw_response.generate(
            model=name, prompt=request.prompt, size=size, n=1
        )
    [picture, *_] = read_as(Pictures, answer.content, name, "picture").data
    if not picture.b64_json:
        return ImageResult(url=picture.url or "", model=name)
    try:
        data = base64.b64decode(picture.b64_json, validate=True)
    except binascii.Error:
        raise ModelError(f"openai: {name} gave a picture that cannot be decoded") from None
    kinds = (kind for start, kind in SIGNATURES.items() if data.startswith(start))
    return ImageResult(data=data, content_type=next(kinds, "image/png"), model=name)


@model(ModelType.IMAGE_DESCRIPTION, when=serves(DESCRIBES))
async def description(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    """Have it said what a picture shows."""
    client = agent.services[Client]
    own = client.settings
    data = base64.b64encode(request.image).decode("ascii")
    seen = {"url": f"data:{request.content_type};base64,{data}"}
    content = [
        {"type": "text", "text": request.prompt or QUESTION},
        {"type": "image_url", "image_url": seen},
    ]
    length = "max_completion_tokens" if place_of(own, DESCRIBES).is_openai else "max_tokens"
    sent = {
        "model": model_of(own, DESCRIBES),
        "messages": [{"role": "user", "content": content}],
        length: own.openai_image_description_max_tokens,
    }
    return await write(client, client.line(DESCRIBES), sent, None)


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
