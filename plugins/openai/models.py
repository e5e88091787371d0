"""The handlers of the models, and the connections that they use."""

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any

from bot import Agent, model
from bot.models import (
    ImageRequest,
    ImageResult,
    ModelError,
    ModelInfo,
    ModelType,
    SpeechRequest,
    SpeechResult,
    TextResult,
    TranscriptionRequest,
    note_call,
)
from bot.models import openai_compatible as api
from bot.platform import sniff_media_type
from plugins.openai.settings import CAPABILITIES, OpenAISettings, can_call_tools, endpoint_for, model_for, writes_text

# The API takes the format from the suffix. `mimetypes` has few of these types, on some systems none.
SUFFIXES = {"mp4": "m4a", "mpeg": "mp3", "opus": "ogg", "vnd.wave": "wav", "wave": "wav"}
SUFFIXES |= {name: name for name in ("flac", "m4a", "mp3", "ogg", "wav", "webm")}


class Client(api.CompatibleClient):
    """All connections to the API, opened and closed with the agent."""

    provider = "openai"
    settings_type = OpenAISettings

    def __init__(self, agent: Agent) -> None:
        settings = agent.settings.load(OpenAISettings)
        super().__init__(
            agent, settings, {capability: endpoint_for(settings, capability) for capability in ("", *CAPABILITIES)}
        )

    @classmethod
    def model_for(cls, settings: Any, capability: str) -> str:
        """Return the model of a capability; blank if no server is known to provide it."""
        return model_for(settings, capability)

    async def text_model(self, size: str) -> str:
        """Return the model that a setting names, or the only one of another server than OpenAI's if it is not set."""
        default: str = getattr(self.settings, f"openai_{size.lower()}_model")
        variables = "OPENAI_LARGE_MODEL and OPENAI_SMALL_MODEL"
        return self.known_model(size) or await self.listing.find_text_model(default, variables)


def _server_of(agent: Agent, capability: str) -> tuple[OpenAISettings, api.Connection, str]:
    """Return the settings, the connection of a capability and its model, which is noted for the call."""
    client = agent.services[Client]
    name = model_for(client.settings, capability)
    note_call(name)
    return client.settings, client.connection(capability), name


def _describe(capability: str) -> Callable[[Agent], Awaitable[ModelInfo]]:
    async def describe_model(agent: Agent) -> ModelInfo:
        return ModelInfo(model_for(agent.services[Client].settings, capability))

    return describe_model


@model(ModelType.IMAGE, when=Client.serves("IMAGE"), describe_model=_describe("IMAGE"))
async def generate_image(agent: Agent, request: ImageRequest) -> ImageResult:
    """Return a picture that a model generates. Raises as `Connection.fetch` does."""
    _, connection, name = _server_of(agent, "IMAGE")
    size: Any = {"size": "x".join(map(str, request.size))} if request.size else {}
    generate = connection.sdk.images.with_streaming_response.generate
    body = await connection.fetch(generate(model=name, prompt=request.prompt, n=1, **size), name, "picture")
    data = body.get("data") if isinstance(body, dict) else None
    picture = data[0] if isinstance(data, list) and data else None
    if not isinstance(picture, dict):
        raise connection.invalid(name, "picture")
    encoded, url, usage = picture.get("b64_json"), picture.get("url"), api.read_usage(body.get("usage"))
    if not isinstance(encoded, str) or not encoded:
        return ImageResult(url=url if isinstance(url, str) else "", model=name, usage=usage)
    try:
        image = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ModelError(f"openai: {name} returned a picture that cannot be decoded") from None
    return ImageResult(data=image, content_type=sniff_media_type(image, "image/png"), model=name, usage=usage)


@model(ModelType.TRANSCRIPTION, when=Client.serves("TRANSCRIPTION"), describe_model=_describe("TRANSCRIPTION"))
async def transcribe(agent: Agent, request: TranscriptionRequest) -> TextResult:
    """Return the transcript of a recording. Raises as `Connection.fetch` does."""
    _, connection, name = _server_of(agent, "TRANSCRIPTION")
    content_type = request.content_type.partition(";")[0].strip().lower()
    types = (content_type, sniff_media_type(request.audio, ""))
    suffixes = (SUFFIXES.get(media_type.partition("/")[2].removeprefix("x-")) for media_type in types)
    suffix = next(filter(None, suffixes), "ogg")
    file = (f"recording.{suffix}", request.audio, content_type or "audio/ogg")
    create = connection.sdk.audio.transcriptions.with_streaming_response.create
    body = await connection.fetch(create(model=name, file=file, response_format="json"), name, "transcript")
    if not isinstance(body, dict) or not isinstance(body.get("text"), str):
        raise connection.invalid(name, "transcript")
    return TextResult(body["text"], name, api.read_usage(body.get("usage")))


@model(ModelType.TEXT_TO_SPEECH, when=Client.serves("TTS"), describe_model=_describe("TTS"))
async def synthesize_speech(agent: Agent, request: SpeechRequest) -> SpeechResult:
    """Return a text as speech. Raises as `Connection.mapped_errors` does."""
    settings, connection, name = _server_of(agent, "TTS")
    is_opus = request.content_type in ("audio/ogg", "audio/opus")
    wanted: Any = {"instructions": settings.openai_tts_instructions} if settings.openai_tts_instructions else {}
    create = connection.sdk.audio.speech.with_streaming_response.create
    with connection.mapped_errors(name):
        async with create(
            model=name,
            voice=request.voice or settings.openai_tts_voice,
            input=request.text,
            response_format="opus" if is_opus else "mp3",
            **wanted,
        ) as response:
            speech = b"".join([chunk async for chunk in connection.read_chunks(response.iter_bytes())])
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type.startswith(("text/", "application/json")):
        raise ModelError(f"openai: {name} returned {content_type} instead of speech")
    if not content_type.startswith("audio/"):
        content_type = "audio/ogg" if is_opus else "audio/mpeg"
    return SpeechResult(speech, content_type, name)


small, medium, large, embed, describe_image = api.make_handlers(
    Client, can_call_tools=can_call_tools, writes_text=writes_text
)
HANDLERS = [small, medium, large, embed, generate_image, describe_image, transcribe, synthesize_speech]
