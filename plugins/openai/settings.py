"""The settings of the openai plugin."""

from pydantic import Field

from bot import Secret, Settings, SettingsModel
from bot.models import host_label
from bot.models.openai_compatible import OPENAI_HOST, Endpoint
from bot.text import user_text

URL_PATTERN = "^https?://"
KEY, SERVER = "OPENAI_API_KEY", "OPENAI_BASE_URL"
# Capabilities that may have their own server, as named in the variables: their models at OpenAI, and the user data that
# they send.
CAPABILITIES = {
    "EMBEDDING": ("text-embedding-3-small", "searchable"),
    "IMAGE": ("gpt-image-1", ""),
    "IMAGE_DESCRIPTION": ("gpt-4o-mini", "pictures"),
    "TRANSCRIPTION": ("gpt-4o-mini-transcribe", "recordings"),
    "TTS": ("gpt-4o-mini-tts", "spoken"),
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
    openai_base_url: str | None = Field(
        None,
        pattern=URL_PATTERN,
        description="Another server that speaks the same API, e.g. http://127.0.0.1:11434/v1 for Ollama.",
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
    openai_embedding_url: str | None = Field(None, pattern=URL_PATTERN, description="Another server for vectors.")
    openai_embedding_api_key: Secret | None = Field(
        None, description="Its key; OPENAI_API_KEY where it is not set. So with the ones below."
    )
    openai_image_model: str | None = Field(None, description="Draws pictures; gpt-image-1 at OpenAI.")
    openai_image_url: str | None = Field(None, pattern=URL_PATTERN, description="Another server for pictures.")
    openai_image_api_key: Secret | None = Field(None, description="Its key.")
    openai_image_description_model: str | None = Field(
        None, description="Says what a picture shows; gpt-4o-mini at OpenAI."
    )
    openai_image_description_max_tokens: int = Field(1024, ge=1, description="The longest description, in tokens.")
    openai_image_description_url: str | None = Field(
        None, pattern=URL_PATTERN, description="Another server for descriptions."
    )
    openai_image_description_api_key: Secret | None = Field(None, description="Its key.")
    openai_transcription_model: str | None = Field(
        None, description="Writes down recordings; gpt-4o-mini-transcribe at OpenAI."
    )
    openai_transcription_url: str | None = Field(
        None, pattern=URL_PATTERN, description="Another server for recordings."
    )
    openai_transcription_api_key: Secret | None = Field(None, description="Its key.")
    openai_tts_model: str | None = Field(None, description="Speaks; gpt-4o-mini-tts at OpenAI.")
    openai_tts_voice: str = Field("nova", description="With which voice.")
    openai_tts_instructions: str | None = Field(None, description="How, e.g. `calm and slow`.")
    openai_tts_url: str | None = Field(None, pattern=URL_PATTERN, description="Another server for speech.")
    openai_tts_api_key: Secret | None = Field(None, description="Its key.")


def endpoint_for(settings: OpenAISettings, capability: str = "") -> Endpoint:
    """Return the endpoint of a capability; blank for text."""
    capability_url = getattr(settings, f"openai_{capability.lower()}_url", None)
    capability_key = getattr(settings, f"openai_{capability.lower()}_api_key", None)
    url_name = f"OPENAI_{capability}_URL" if capability_url else SERVER
    return Endpoint(
        provider="openai",
        url=capability_url or settings.openai_base_url,
        key=capability_key or settings.openai_api_key,
        url_name=url_name,
        key_name=f"OPENAI_{capability}_API_KEY" if capability_key or capability_url else KEY,
        model_advice=f"check the model's name in OPENAI_…_MODEL and that {url_name} ends in /v1",
    )


def model_for(settings: OpenAISettings, capability: str) -> str:
    """Return the model of a capability; blank if no server is known to provide it."""
    endpoint, field = endpoint_for(settings, capability), f"openai_{capability.lower()}_model"
    is_known = endpoint.is_openai or field in settings.model_fields_set
    default, _ = CAPABILITIES.get(capability, ("", "")) if endpoint.is_openai else ("", "")
    return getattr(settings, field) or default if endpoint.is_configured and is_known else ""


def writes_text(settings: Settings) -> bool:
    """Return whether a server for text is set; there may be one for another capability only."""
    return endpoint_for(settings.load(OpenAISettings)).is_configured


def can_call_tools(settings: Settings) -> bool:
    """Return whether actions are offered to text models as tools."""
    values = settings.load(OpenAISettings)
    return endpoint_for(values).is_openai if values.openai_tools is None else values.openai_tools


def missing_settings(settings: Settings) -> str:
    """Return what is missing; empty if a key or a server is set for any capability."""
    if any(name in settings for name in (KEY, SERVER, *(f"OPENAI_{capability}_URL" for capability in CAPABILITIES))):
        return ""
    return f"set {KEY}, or {SERVER} for a server of your own, in .env"


def privacy_statement(settings: Settings) -> str:
    """Return the statement to which servers user data is sent."""
    values = settings.load(OpenAISettings)
    sent: dict[str, list[str]] = {}  # by host
    for capability, (_, data) in {"": ("", "text"), **CAPABILITIES}.items():
        endpoint = endpoint_for(values, capability)
        if data and (model_for(values, capability) if capability else endpoint.is_configured):
            host = host_label(endpoint.url or f"https://{OPENAI_HOST}")
            sent.setdefault(host, []).append(user_text(f"privacy.data.{data}"))
    return " ".join(user_text("privacy.sent", host=host, data=", ".join(data)) for host, data in sent.items())
