"""Calls for images, descriptions of images, transcription, speech and embeddings."""

import base64
import binascii
import re
from typing import Annotated, Any

import aiohttp
from pydantic import BaseModel, Field

from bot.errors import ModelError
from bot.models.openai_compatible.chat import send
from bot.models.openai_compatible.client import CompatibleClient
from bot.models.openai_compatible.connection import Connection
from bot.models.openai_compatible.requests import read_body
from bot.models.openai_compatible.responses import Lenient, TokenCount, parse_response
from bot.models.types import (
    EmbeddingRequest,
    EmbeddingResult,
    ImageDescriptionRequest,
    ImageRequest,
    ImageResult,
    SpeechRequest,
    SpeechResult,
    TextResult,
    TranscriptionRequest,
    Usage,
)
from bot.models.usage import note_call

DEFAULT_DESCRIPTION_PROMPT = "Describe this picture in a few sentences."
SIGNATURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp", b"GIF8": "image/gif"}


class ImageBody(BaseModel):
    """A generated picture, as a URL or as data."""

    url: Lenient[str] = None
    b64_json: Lenient[str] = None


class ImagesBody(BaseModel):
    """A response with pictures; one is requested."""

    data: Annotated[list[ImageBody], Field(min_length=1)]


async def generate_image(connection: Connection, name: str, request: ImageRequest) -> ImageResult:
    """Return a picture that a model generates. Raises as `Connection.mapped_errors` does."""
    note_call(name)
    wanted: dict[str, Any] = {"model": name, "prompt": request.prompt, "n": 1}
    wanted |= {"size": "x".join(map(str, request.size))} if request.size else {}
    with connection.mapped_errors(name):
        answer = await connection.requests.fetch("POST", "images/generations", wanted)
    [picture, *_] = parse_response(ImagesBody, answer, name, "picture", connection.endpoint).data
    if not picture.b64_json:
        return ImageResult(url=picture.url or "", model=name)
    try:
        data = base64.b64decode(picture.b64_json, validate=True)
    except binascii.Error:
        raise ModelError(f"{connection.endpoint.provider}: {name} returned a picture that cannot be decoded") from None
    content_types = (content_type for signature, content_type in SIGNATURES.items() if data.startswith(signature))
    return ImageResult(data=data, content_type=next(content_types, "image/png"), model=name)


async def describe_image(
    client: CompatibleClient, connection: Connection, name: str, request: ImageDescriptionRequest, *, max_tokens: int
) -> TextResult:
    """Return a description of a picture. Raises as `Connection.mapped_errors` does."""
    data = base64.b64encode(request.image).decode("ascii")
    image_url = {"url": f"data:{request.content_type};base64,{data}"}
    content = [
        {"type": "text", "text": request.prompt or DEFAULT_DESCRIPTION_PROMPT},
        {"type": "image_url", "image_url": image_url},
    ]
    length_parameter = "max_completion_tokens" if connection.endpoint.is_openai else "max_tokens"
    body = {"model": name, "messages": [{"role": "user", "content": content}], length_parameter: max_tokens}
    return await send(client, connection, body, None)


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


async def transcribe(connection: Connection, name: str, request: TranscriptionRequest) -> TextResult:
    """Return the transcript of a recording. Raises as `Connection.mapped_errors` does."""
    note_call(name)
    content_type = request.content_type.partition(";")[0].strip().lower()
    file_name = f"recording{_suffix_of(content_type, request.audio)}"
    form = aiohttp.FormData({"model": name, "response_format": "json"})
    form.add_field("file", request.audio, filename=file_name, content_type=content_type or "audio/ogg")
    with connection.mapped_errors(name):
        async with connection.requests.open("POST", "audio/transcriptions", form=form) as response:
            answer = await read_body(response)
    transcript = parse_response(TranscriptBody, answer, name, "transcript", connection.endpoint)
    usage = Usage(transcript.usage.input_tokens, transcript.usage.output_tokens) if transcript.usage else None
    return TextResult(transcript.text, name, usage)


def _suffix_of(content_type: str, audio: bytes) -> str:
    """Return the suffix that names the format of a recording to the API."""
    by_content = (suffix for signature, suffix in SOUND_SIGNATURES if signature.match(audio))
    return SUFFIXES.get(content_type) or next(by_content, ".ogg")


async def synthesize_speech(
    connection: Connection, name: str, request: SpeechRequest, *, voice: str, instructions: str | None
) -> SpeechResult:
    """Return a text as speech; `voice` is the default one. Raises as `Connection.mapped_errors` does."""
    note_call(name)
    is_opus = request.content_type in ("audio/ogg", "audio/opus")
    wanted = {"model": name, "voice": request.voice or voice, "input": request.text}
    wanted |= {"instructions": instructions} if instructions else {}
    wanted["response_format"] = "opus" if is_opus else "mp3"
    with connection.mapped_errors(name):
        async with connection.requests.open("POST", "audio/speech", wanted) as response:
            speech = await read_body(response)
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type.startswith(("text/", "application/json")):
        raise ModelError(f"{connection.endpoint.provider}: {name} returned {content_type} instead of speech")
    if not content_type.startswith("audio/"):
        content_type = "audio/ogg" if is_opus else "audio/mpeg"
    return SpeechResult(speech, content_type, name)


class EmbeddingBody(BaseModel):
    """The embedding of the text at `index`."""

    index: Annotated[int, Field(ge=0)]
    embedding: list[float]


class EmbeddingUsage(BaseModel):
    """The tokens of an embedding request."""

    prompt_tokens: TokenCount


class EmbeddingsBody(BaseModel):
    """A response with embeddings."""

    data: list[EmbeddingBody]
    usage: Lenient[EmbeddingUsage] = None


async def embed(
    connection: Connection,
    name: str,
    request: EmbeddingRequest,
    *,
    dimensions: int | None = None,
    dimensions_name: str = "",
) -> EmbeddingResult:
    """Return the embeddings of texts, of that many dimensions if they are set by the variable of that name.

    Raises ModelError if one is missing or has a wrong dimension, and as `Connection.mapped_errors` does.
    """
    with connection.mapped_errors(name):
        wanted: dict[str, Any] = {"model": name, "input": list(request.texts), "encoding_format": "float"}
        wanted |= {} if dimensions is None else {"dimensions": dimensions}
        answer = await connection.requests.fetch("POST", "embeddings", wanted)
    body = parse_response(EmbeddingsBody, answer, name, "list of vectors", connection.endpoint)
    ordered = sorted(body.data, key=lambda item: item.index)
    if [item.index for item in ordered] != list(range(len(request.texts))):
        raise ModelError(
            f"{connection.endpoint.provider}: {name} did not return one vector for each of {len(request.texts)} texts"
        )
    lengths = {len(item.embedding) for item in ordered}
    if dimensions is not None and lengths - {dimensions}:
        raise ModelError(
            f"{connection.endpoint.provider}: {name} returned vectors of {max(lengths)} numbers, but "
            f"{dimensions_name} is {dimensions}: remove that setting, or choose a model that supports it"
        )
    return EmbeddingResult(
        vectors=tuple(tuple(item.embedding) for item in ordered),
        model=_embedding_space(
            name, max(lengths, default=0), is_plain=dimensions is None and connection.endpoint.is_openai
        ),
        usage=Usage(body.usage.prompt_tokens) if body.usage else None,
    )


def _embedding_space(name: str, dimension: int, *, is_plain: bool) -> str:
    """Return the name of the space in which vectors are comparable.

    The dimension is part of it unless the model is OpenAI's own: another server may change the model behind
    a name.
    """
    return name if is_plain else f"{name}-{dimension}"
