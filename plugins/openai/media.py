"""The handlers of images, transcription and speech."""

import base64
import binascii
import re
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
from plugins.openai.chat import send
from plugins.openai.client import Client
from plugins.openai.responses import Lenient, TokenCount, parse_response
from plugins.openai.settings import endpoint_for, model_for, serves_capability

DRAWING, DESCRIPTION = "IMAGE", "IMAGE_DESCRIPTION"
DEFAULT_DESCRIPTION_PROMPT = "Describe this picture in a few sentences."
SIGNATURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp", b"GIF8": "image/gif"}


class ImageBody(BaseModel):
    """A generated picture, as a URL or as data."""

    url: Lenient[str] = None
    b64_json: Lenient[str] = None


class ImagesBody(BaseModel):
    """A response with pictures; one is requested."""

    data: Annotated[list[ImageBody], Field(min_length=1)]


@model(ModelType.IMAGE, when=serves_capability(DRAWING))
async def generate_image(agent: Agent, request: ImageRequest) -> ImageResult:
    """Return a generated picture."""
    client = agent.services[Client]
    name, connection = model_for(client.settings, DRAWING), client.connection(DRAWING)
    size = "x".join(map(str, request.size)) if request.size else openai.omit
    with connection.mapped_errors():
        response = await connection.sdk.images.with_raw_response.generate(
            model=name, prompt=request.prompt, size=size, n=1
        )
    [picture, *_] = parse_response(ImagesBody, response.content, name, "picture").data
    if not picture.b64_json:
        return ImageResult(url=picture.url or "", model=name)
    try:
        data = base64.b64decode(picture.b64_json, validate=True)
    except binascii.Error:
        raise ModelError(f"openai: {name} returned a picture that cannot be decoded") from None
    content_types = (content_type for signature, content_type in SIGNATURES.items() if data.startswith(signature))
    return ImageResult(data=data, content_type=next(content_types, "image/png"), model=name)


@model(ModelType.IMAGE_DESCRIPTION, when=serves_capability(DESCRIPTION))
async def describe_image(agent: Agent, request: ImageDescriptionRequest) -> TextResult:
    """Return a description of a picture."""
    client = agent.services[Client]
    openai_settings = client.settings
    data = base64.b64encode(request.image).decode("ascii")
    image_url = {"url": f"data:{request.content_type};base64,{data}"}
    content = [
        {"type": "text", "text": request.prompt or DEFAULT_DESCRIPTION_PROMPT},
        {"type": "image_url", "image_url": image_url},
    ]
    length_parameter = "max_completion_tokens" if endpoint_for(openai_settings, DESCRIPTION).is_openai else "max_tokens"
    body = {
        "model": model_for(openai_settings, DESCRIPTION),
        "messages": [{"role": "user", "content": content}],
        length_parameter: openai_settings.openai_image_description_max_tokens,
    }
    return await send(client, client.connection(DESCRIPTION), body, None)


TRANSCRIPTION, SPEECH = "TRANSCRIPTION", "TTS"
# The API tells the format by the suffix. `mimetypes` knows few of these types, on some systems none.
SUFFIXES = {
    "application/ogg": ".ogg",
    "audio/flac": ".flac",
    "audio/m4a": ".m4a",
    "audio/mp3": ".mp3",
    "audio/mp4": ".m4a",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/opus": ".ogg",
    "audio/vnd.wave": ".wav",
    "audio/wav": ".wav",
    "audio/wave": ".wav",
    "audio/webm": ".webm",
    "audio/x-flac": ".flac",
    "audio/x-m4a": ".m4a",
    "audio/x-wav": ".wav",
    "video/mp4": ".mp4",
    "video/ogg": ".ogg",
    "video/webm": ".webm",
}
# For recordings of another type or of none: their first bytes.
SOUND_SIGNATURES = (
    (re.compile(rb"OggS"), ".ogg"),
    (re.compile(rb"RIFF....WAVE", re.DOTALL), ".wav"),
    (re.compile(rb"\x1aE\xdf\xa3"), ".webm"),
    (re.compile(rb"....ftyp", re.DOTALL), ".m4a"),
    (re.compile(rb"fLaC"), ".flac"),
    (re.compile(rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]"), ".mp3"),
)


class TranscriptionUsage(BaseModel):
    """The tokens of a transcription, if the server counts them."""

    input_tokens: TokenCount
    output_tokens: TokenCount


class TranscriptBody(BaseModel):
    """A transcript of a recording."""

    text: str
    usage: Lenient[TranscriptionUsage] = None


@model(ModelType.TRANSCRIPTION, when=serves_capability(TRANSCRIPTION))
async def transcribe(agent: Agent, request: TranscriptionRequest) -> TextResult:
    """Return the transcript of a recording."""
    client = agent.services[Client]
    name, connection = model_for(client.settings, TRANSCRIPTION), client.connection(TRANSCRIPTION)
    content_type = request.content_type.partition(";")[0].strip().lower()
    file_name = f"recording{_suffix_of(content_type, request.audio)}"
    with connection.mapped_errors():
        response = await connection.sdk.audio.transcriptions.with_raw_response.create(
            model=name, file=(file_name, request.audio, content_type or "audio/ogg"), response_format="json"
        )
    transcript = parse_response(TranscriptBody, response.content, name, "transcript")
    usage = Usage(transcript.usage.input_tokens, transcript.usage.output_tokens) if transcript.usage else None
    return TextResult(transcript.text, name, usage)


def _suffix_of(content_type: str, audio: bytes) -> str:
    """Return the suffix that names the format of a recording to the API."""
    by_content = (suffix for signature, suffix in SOUND_SIGNATURES if signature.match(audio))
    return SUFFIXES.get(content_type) or next(by_content, ".ogg")


@model(ModelType.TEXT_TO_SPEECH, when=serves_capability(SPEECH))
async def synthesize_speech(agent: Agent, request: SpeechRequest) -> SpeechResult:
    """Return a text as speech."""
    client = agent.services[Client]
    openai_settings, connection = client.settings, client.connection(SPEECH)
    name = model_for(openai_settings, SPEECH)
    with connection.mapped_errors():
        response = await connection.sdk.audio.speech.with_raw_response.create(
            model=name,
            voice=request.voice or openai_settings.openai_tts_voice,
            input=request.text,
            instructions=openai_settings.openai_tts_instructions or openai.omit,
            response_format="mp3",
        )
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type.startswith(("text/", "application/json")):
        raise ModelError(f"openai: {name} returned {content_type} instead of speech")
    return SpeechResult(response.content, content_type if content_type.startswith("audio/") else "audio/mpeg", name)
