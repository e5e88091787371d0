"""Models from OpenAI, or from any server that speaks its API: vLLM, LM Studio, llama.cpp."""

import base64
import binascii
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import Field

from bot import Agent, Plugin, Secret, Settings, SettingsModel, model
from bot.models import (
    ImageRequest,
    ImageResult,
    ModelError,
    ModelInfo,
    ModelType,
    ModerationRequest,
    ModerationResult,
    SpeechRequest,
    SpeechResult,
    TextResult,
    TranscriptionRequest,
    note_call,
)
from bot.models import openai_compatible as api
from bot.platform import sniff_media_type

ServerUrl = Annotated[str, Field(pattern="^https?://")]
KEY, SERVER = "OPENAI_API_KEY", "OPENAI_BASE_URL"
# Capabilities that may have their own server, as named in the variables: their models at OpenAI, and the user data that
# they send.
CAPABILITIES = {
    "EMBEDDING": ("text-embedding-3-small", "searchable"),
    "IMAGE": ("gpt-image-1", ""),
    "IMAGE_DESCRIPTION": ("gpt-4o-mini", "pictures"),
    "TRANSCRIPTION": ("gpt-4o-mini-transcribe", "recordings"),
    "TTS": ("gpt-4o-mini-tts", "spoken"),
    "MODERATION": ("omni-moderation-latest", "checked"),
}


class OpenAISettings(SettingsModel):
    """Server, key and models. Another server than OpenAI serves a capability only if its model is set."""

    CHARACTER_SETTINGS = frozenset(
        f"OPENAI_{name}"
        for name in (
            *("API_KEY", "SMALL_MODEL", "MEDIUM_MODEL", "LARGE_MODEL", "TOOLS", "EMBEDDING_DIMENSIONS"),
            *("IMAGE_DESCRIPTION_MAX_TOKENS", "TTS_VOICE", "TTS_INSTRUCTIONS"),
            *(f"{capability}_{part}" for capability in CAPABILITIES for part in ("MODEL", "API_KEY")),
        )
    )

    openai_api_key: Secret | None = Field(None, description="The key. Not needed for most local servers.")
    openai_base_url: ServerUrl | None = Field(
        None, description="Another server that speaks the same API, e.g. http://127.0.0.1:11434/v1 for Ollama."
    )
    openai_small_model: str = Field("gpt-4o-mini", description="Decides whether to answer; cheap and quick.")
    openai_medium_model: str | None = Field(
        None, description="Between the two; one of them stands in where it is not set."
    )
    openai_large_model: str = Field("gpt-4o", description="Writes the answers.")
    openai_tools: bool | None = Field(
        None,
        description="Whether actions are offered as functions. Unset: at OpenAI yes, at other servers no, "
        "because small models fill in tags more reliably.",
    )
    openai_embedding_model: str | None = Field(
        None, description="Makes the vectors by which things are found; text-embedding-3-small at OpenAI."
    )
    openai_embedding_dimensions: int | None = Field(
        None, ge=1, le=65_536, description="How many numbers a vector has; the model's own where unset."
    )
    openai_embedding_url: ServerUrl | None = Field(None, description="Another server for vectors.")
    openai_embedding_api_key: Secret | None = Field(
        None, description="Its key; OPENAI_API_KEY where it is not set. So with the ones below."
    )
    openai_image_model: str | None = Field(None, description="Draws pictures; gpt-image-1 at OpenAI.")
    openai_image_url: ServerUrl | None = Field(None, description="Another server for pictures.")
    openai_image_api_key: Secret | None = Field(None, description="Its key.")
    openai_image_description_model: str | None = Field(
        None, description="Says what a picture shows; gpt-4o-mini at OpenAI."
    )
    openai_image_description_max_tokens: int = Field(1024, ge=1, description="The longest description, in tokens.")
    openai_image_description_url: ServerUrl | None = Field(None, description="Another server for descriptions.")
    openai_image_description_api_key: Secret | None = Field(None, description="Its key.")
    openai_transcription_model: str | None = Field(
        None, description="Writes down recordings; gpt-4o-mini-transcribe at OpenAI."
    )
    openai_transcription_url: ServerUrl | None = Field(None, description="Another server for recordings.")
    openai_transcription_api_key: Secret | None = Field(None, description="Its key.")
    openai_tts_model: str | None = Field(None, description="Speaks; gpt-4o-mini-tts at OpenAI.")
    openai_tts_voice: str = Field("nova", description="With which voice.")
    openai_tts_instructions: str | None = Field(None, description="How, e.g. `calm and slow`.")
    openai_tts_url: ServerUrl | None = Field(None, description="Another server for speech.")
    openai_tts_api_key: Secret | None = Field(None, description="Its key.")
    openai_moderation_model: str | None = Field(
        None, description="Finds harmful texts where FILTER_MODERATION is on; omni-moderation-latest at OpenAI."
    )
    openai_moderation_url: ServerUrl | None = Field(None, description="Another server for moderation.")
    openai_moderation_api_key: Secret | None = Field(None, description="Its key.")


def can_call_tools(settings: Settings) -> bool:
    """Return whether actions are offered to text models as tools."""
    values = settings.load(OpenAISettings)
    return Client.endpoint_for(values).is_openai if values.openai_tools is None else values.openai_tools


def missing_settings(settings: Settings) -> str:
    """Return what is missing; empty if a key or a server is set for any capability."""
    if any(name in settings for name in (KEY, SERVER, *(f"OPENAI_{capability}_URL" for capability in CAPABILITIES))):
        return ""
    return f"set {KEY}, or {SERVER} for a server of your own, in .env"


def privacy_statement(settings: Settings) -> str:
    """Return the statement to which servers user data is sent."""
    return Client.privacy_statement(settings, () if settings.get("FILTER_MODERATION") == "on" else ("MODERATION",))


# The API takes the format from the suffix. `mimetypes` has few of these types, on some systems none.
SUFFIXES = {"mp4": "m4a", "mpeg": "mp3", "opus": "ogg", "vnd.wave": "wav", "wave": "wav"}
SUFFIXES |= {name: name for name in ("flac", "m4a", "mp3", "ogg", "wav", "webm")}


class Client(api.CompatibleClient):
    """All connections to the API, opened and closed with the agent."""

    provider = "openai"
    settings_type = OpenAISettings
    capabilities: ClassVar = {"": "text", **{capability: data for capability, (_, data) in CAPABILITIES.items()}}

    @classmethod
    def endpoint_for(cls, settings: Any, capability: str = "") -> api.Endpoint:
        """Return the server of a capability, which may have one or a key of its own; blank for text."""
        capability_url = getattr(settings, f"openai_{capability.lower()}_url", None)
        capability_key = getattr(settings, f"openai_{capability.lower()}_api_key", None)
        url_name = f"OPENAI_{capability}_URL" if capability_url else SERVER
        return api.Endpoint(
            provider="openai",
            url=capability_url or settings.openai_base_url,
            key=capability_key or settings.openai_api_key,
            url_name=url_name,
            key_name=f"OPENAI_{capability}_API_KEY" if capability_key or capability_url else KEY,
            model_advice=f"check the model's name in OPENAI_…_MODEL and that {url_name} ends in /v1",
        )

    @classmethod
    def model_for(cls, settings: Any, capability: str) -> str:
        """Return the model of a capability; blank if no server is known to provide it."""
        endpoint, field = cls.endpoint_for(settings, capability), f"openai_{capability.lower()}_model"
        is_known = endpoint.is_openai or field in settings.model_fields_set
        default, _ = CAPABILITIES.get(capability, ("", "")) if endpoint.is_openai else ("", "")
        return getattr(settings, field) or default if endpoint.is_configured and is_known else ""

    async def text_model(self, size: str) -> str:
        """Return the model that a setting names, or the only one of another server than OpenAI's if it is not set."""
        if name := self.known_model(size):
            return name
        default: str = getattr(self.settings, f"openai_{size.lower()}_model")
        return await self.listing.find_text_model(default, "OPENAI_LARGE_MODEL and OPENAI_SMALL_MODEL")


def _server_of(agent: Agent, capability: str) -> tuple[OpenAISettings, api.Connection, str]:
    """Return the settings, the connection of a capability and its model, which is noted for the call."""
    client = agent.services[Client]
    name = Client.model_for(client.settings, capability)
    note_call(name)
    return client.settings, client.connection(capability), name


async def _describe(capability: str, agent: Agent) -> ModelInfo:
    return ModelInfo(Client.model_for(agent.services[Client].settings, capability))


@model(ModelType.IMAGE, when=Client.serves("IMAGE"), describe_model=partial(_describe, "IMAGE"))
async def generate_image(agent: Agent, request: ImageRequest) -> ImageResult:
    """Return a picture that a model generates. Raises as `Connection.fetch` does."""
    _, connection, name = _server_of(agent, "IMAGE")
    sent = {"model": name, "prompt": request.prompt, "n": 1}
    sent |= {"size": "x".join(map(str, request.size))} if request.size else {}
    body = await connection.fetch("/images/generations", "picture", sent)
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


@model(ModelType.TRANSCRIPTION, when=Client.serves("TRANSCRIPTION"), describe_model=partial(_describe, "TRANSCRIPTION"))
async def transcribe(agent: Agent, request: TranscriptionRequest) -> TextResult:
    """Return the transcript of a recording. Raises as `Connection.fetch` does."""
    _, connection, name = _server_of(agent, "TRANSCRIPTION")
    content_type = request.content_type.partition(";")[0].strip().lower()
    types = (content_type, sniff_media_type(request.audio, ""))
    suffixes = (SUFFIXES.get(media_type.partition("/")[2].removeprefix("x-")) for media_type in types)
    suffix = next(filter(None, suffixes), "ogg")
    body = await connection.fetch(
        "/audio/transcriptions",
        "transcript",
        {"model": name, "response_format": "json"},
        files={"file": (f"recording.{suffix}", request.audio, content_type or "audio/ogg")},
        options={"headers": {"Content-Type": "multipart/form-data"}},
    )
    if not isinstance(body, dict) or not isinstance(body.get("text"), str):
        raise connection.invalid(name, "transcript")
    return TextResult(body["text"], name, api.read_usage(body.get("usage")))


@model(ModelType.TEXT_TO_SPEECH, when=Client.serves("TTS"), describe_model=partial(_describe, "TTS"))
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


@model(ModelType.MODERATION, when=Client.serves("MODERATION"), describe_model=partial(_describe, "MODERATION"))
async def moderate(agent: Agent, request: ModerationRequest) -> ModerationResult:
    """Return the categories of harm of a text. Raises as `Connection.fetch` does."""
    _, connection, name = _server_of(agent, "MODERATION")
    body = await connection.fetch("/moderations", "moderation", {"model": name, "input": request.text})
    results = body.get("results") if isinstance(body, dict) else None
    result = results[0] if isinstance(results, list) and results else None
    scores = result.get("category_scores") if isinstance(result, dict) else None
    flags = result.get("categories") if isinstance(result, dict) else None
    if not isinstance(scores, dict) or not isinstance(flags, dict):
        raise connection.invalid(name, "moderation")
    numbers = {key: float(score) for key, score in scores.items() if isinstance(score, int | float)}
    return ModerationResult(numbers, frozenset(key for key, is_flagged in flags.items() if is_flagged is True), name)


small, medium, large, embed, describe_image = api.make_handlers(
    Client, can_call_tools=can_call_tools, writes_text=Client.serves()
)
HANDLERS = [small, medium, large, embed, generate_image, describe_image, transcribe, synthesize_speech, moderate]

plugin = Plugin(
    "openai",
    "Text, embeddings, pictures and speech from OpenAI, or from any server with its API.",
    models=HANDLERS,
    services=[Client],
    settings=OpenAISettings,
    missing_settings=missing_settings,
    privacy_statement=privacy_statement,
)
