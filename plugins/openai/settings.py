"""The variables of the openai plugin."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import Field

from bot import Secret, Settings, SettingsModel, reject_redirected_key
from bot.models import host_label
from bot.text import user_text

URL_PATTERN = "^https?://"
OPENAI_HOST = "api.openai.com"
KEY, SERVER = "OPENAI_API_KEY", "OPENAI_BASE_URL"
# What may stand on a server of its own, as it is called in the variables, and its model at OpenAI.
CAPABILITIES = {
    "EMBEDDING": "text-embedding-3-small",
    "IMAGE": "gpt-image-1",
    "IMAGE_DESCRIPTION": "gpt-4o-mini",
    "TRANSCRIPTION": "gpt-4o-mini-transcribe",
    "TTS": "gpt-4o-mini-tts",
}

# What is sent where a part is asked for; nothing of people's where a part is not listed.
SENT_DATA = {
    "": "text",
    "EMBEDDING": "searchable",
    "IMAGE_DESCRIPTION": "pictures",
    "TRANSCRIPTION": "recordings",
}


class OpenAISettings(SettingsModel):
    """Which server, with which key, and which models.

    What is not text is served by OpenAI itself, and by another server where its model is named.
    """

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
        None,
        ge=1,
        le=65_536,
        description="How many numbers a vector has; the model's own where unset.",
    )
    openai_embedding_url: str | None = Field(
        None, pattern=URL_PATTERN, description="Another server for vectors."
    )
    openai_embedding_api_key: Secret | None = Field(
        None, description="Its key; OPENAI_API_KEY where it is not set. So with the ones below."
    )
    openai_image_model: str | None = Field(None, description="Draws pictures; gpt-image-1 at OpenAI.")
    openai_image_url: str | None = Field(
        None, pattern=URL_PATTERN, description="Another server for pictures."
    )
    openai_image_api_key: Secret | None = Field(None, description="Its key.")
    openai_image_description_model: str | None = Field(
        None, description="Says what a picture shows; gpt-4o-mini at OpenAI."
    )
    openai_image_description_max_tokens: int = Field(
        1024, ge=1, description="The longest description, in tokens."
    )
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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a type of model is asked for: server and key, and which variables name them."""

    url: str | None
    key: Secret | None
    url_name: str
    key_name: str

    @property
    def is_configured(self) -> bool:
        """Whether anything can be asked there."""
        return self.url is not None or self.key is not None

    @property
    def is_openai(self) -> bool:
        """Whether it is OpenAI itself."""
        return self.url is None or urlsplit(self.url).hostname == OPENAI_HOST


def endpoint_for(settings: OpenAISettings, capability: str = "") -> Endpoint:
    """Tell where a part of `APART` is asked for; the text where none is named."""
    capability_url = getattr(settings, f"openai_{capability.lower()}_url", None)
    capability_key = getattr(settings, f"openai_{capability.lower()}_api_key", None)
    return Endpoint(
        url=capability_url or settings.openai_base_url,
        key=capability_key or settings.openai_api_key,
        url_name=f"OPENAI_{capability}_URL" if capability_url else SERVER,
        key_name=f"OPENAI_{capability}_API_KEY" if capability_key or capability_url else KEY,
    )


def model_for(settings: OpenAISettings, capability: str) -> str:
    """Name the model for a part of `APART`; blank where nobody is known to serve it."""
    endpoint = endpoint_for(settings, capability)
    configured_model: str | None = getattr(settings, f"openai_{capability.lower()}_model")
    return (
        (configured_model or (CAPABILITIES[capability] if endpoint.is_openai else ""))
        if endpoint.is_configured
        else ""
    )


def serves_capability(capability: str) -> Callable[[Settings], bool]:
    """Make what tells whether a part of `APART` is served with an agent's settings."""

    def is_served(settings: Settings) -> bool:
        return bool(model_for(settings.load(OpenAISettings), capability))

    return is_served


def writes_text(settings: Settings) -> bool:
    """Tell whether texts are written: a server for something else may be all there is."""
    return endpoint_for(settings.load(OpenAISettings)).is_configured


def has_medium_model(settings: Settings) -> bool:
    """Tell whether there is a model between the small and the large one."""
    return writes_text(settings) and settings.load(OpenAISettings).openai_medium_model is not None


def can_call_tools(settings: Settings) -> bool:
    """Tell whether functions are offered to the models that write."""
    openai_settings = settings.load(OpenAISettings)
    return (
        endpoint_for(openai_settings).is_openai
        if openai_settings.openai_tools is None
        else openai_settings.openai_tools
    )


def missing_settings(settings: Settings) -> str:
    """Say what is missing; empty where a key or a server is set, if only for a part.

    Raises SettingError where a character's file would have the operator's key sent to its own server.
    """
    reject_redirected_key(settings, server=SERVER, key=KEY)
    for capability in CAPABILITIES:
        url, capability_key = f"OPENAI_{capability}_URL", f"OPENAI_{capability}_API_KEY"
        reject_redirected_key(settings, server=url, key=capability_key if capability_key in settings else KEY)
        if url not in settings:
            reject_redirected_key(settings, server=SERVER, key=capability_key)
    if any(
        name in settings
        for name in (KEY, SERVER, *(f"OPENAI_{capability}_URL" for capability in CAPABILITIES))
    ):
        return ""
    return f"set {KEY}, or {SERVER} for a server of your own, in .env"


def privacy_statement(settings: Settings) -> str:
    """Tell people where what they say is sent."""
    openai_settings = settings.load(OpenAISettings)
    sent_by_host: dict[str, list[str]] = {}
    for capability, data in SENT_DATA.items():
        endpoint = endpoint_for(openai_settings, capability)
        if model_for(openai_settings, capability) if capability else endpoint.is_configured:
            sent_by_host.setdefault(host_label(endpoint.url or f"https://{OPENAI_HOST}"), []).append(
                user_text(f"privacy.data.{data}")
            )
    return " ".join(
        user_text("privacy.sent", host=host, data=", ".join(data)) for host, data in sent_by_host.items()
    )
