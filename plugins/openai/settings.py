"""The variables of the openai plugin."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import Field

from bot import Secret, Settings, SettingsModel, reject_redirected_key
from bot.models import host_label

URL = "^https?://"
OWN_HOST = "api.openai.com"
KEY, SERVER = "OPENAI_API_KEY", "OPENAI_BASE_URL"
# What may stand on a server of its own, as it is called in the variables, and its model at OpenAI.
APART = {
    "EMBEDDING": "text-embedding-3-small",
    "IMAGE": "gpt-image-1",
    "IMAGE_DESCRIPTION": "gpt-4o-mini",
    "TRANSCRIPTION": "gpt-4o-mini-transcribe",
    "TTS": "gpt-4o-mini-tts",
}

# What is sent where a part is asked for; nothing of people's where a part is not listed.
SENT = {
    "": "what is said here",
    "EMBEDDING": "what is to be found again",
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
        pattern=URL,
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
    openai_embedding_url: str | None = Field(None, pattern=URL, description="Another server for vectors.")
    openai_embedding_api_key: Secret | None = Field(
        None, description="Its key; OPENAI_API_KEY where it is not set. So with the ones below."
    )
    openai_image_model: str | None = Field(None, description="Draws pictures; gpt-image-1 at OpenAI.")
    openai_image_url: str | None = Field(None, pattern=URL, description="Another server for pictures.")
    openai_image_api_key: Secret | None = Field(None, description="Its key.")
    openai_image_description_model: str | None = Field(
        None, description="Says what a picture shows; gpt-4o-mini at OpenAI."
    )
    openai_image_description_max_tokens: int = Field(
        1024, ge=1, description="The longest description, in tokens."
    )
    openai_image_description_url: str | None = Field(
        None, pattern=URL, description="Another server for descriptions."
    )
    openai_image_description_api_key: Secret | None = Field(None, description="Its key.")
    openai_transcription_model: str | None = Field(
        None, description="Writes down recordings; gpt-4o-mini-transcribe at OpenAI."
    )
    openai_transcription_url: str | None = Field(
        None, pattern=URL, description="Another server for recordings."
    )
    openai_transcription_api_key: Secret | None = Field(None, description="Its key.")
    openai_tts_model: str | None = Field(None, description="Speaks; gpt-4o-mini-tts at OpenAI.")
    openai_tts_voice: str = Field("nova", description="With which voice.")
    openai_tts_instructions: str | None = Field(None, description="How, e.g. `calm and slow`.")
    openai_tts_url: str | None = Field(None, pattern=URL, description="Another server for speech.")
    openai_tts_api_key: Secret | None = Field(None, description="Its key.")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a type of model is asked for: server and key, and which variables name them."""

    url: str | None
    key: Secret | None
    url_name: str
    key_name: str

    @property
    def is_known(self) -> bool:
        """Whether anything can be asked there."""
        return self.url is not None or self.key is not None

    @property
    def is_openai(self) -> bool:
        """Whether it is OpenAI itself."""
        return self.url is None or urlsplit(self.url).hostname == OWN_HOST


def place_of(settings: OpenAISettings, part: str = "") -> Place:
    """Tell where a part of `APART` is asked for; the text where none is named."""
    own_url = getattr(settings, f"openai_{part.lower()}_url", None)
    own_key = getattr(settings, f"openai_{part.lower()}_api_key", None)
    return Place(
        url=own_url or settings.openai_base_url,
        key=own_key or settings.openai_api_key,
        url_name=f"OPENAI_{part}_URL" if own_url else SERVER,
        key_name=f"OPENAI_{part}_API_KEY" if own_key or own_url else KEY,
    )


def model_of(settings: OpenAISettings, part: str) -> str:
    """Name the model for a part of `APART`; blank where nobody is known to serve it."""
    place = place_of(settings, part)
    named: str | None = getattr(settings, f"openai_{part.lower()}_model")
    return (named or (APART[part] if place.is_openai else "")) if place.is_known else ""


def serves(part: str) -> Callable[[Settings], bool]:
    """Make what tells whether a part of `APART` is served with an agent's settings."""

    def is_served(settings: Settings) -> bool:
        return bool(model_of(settings.load(OpenAISettings), part))

    return is_served


def writes(settings: Settings) -> bool:
    """Tell whether texts are written: a server for something else may be all there is."""
    return place_of(settings.load(OpenAISettings)).is_known


def has_medium(settings: Settings) -> bool:
    """Tell whether there is a model between the small and the large one."""
    return writes(settings) and settings.load(OpenAISettings).openai_medium_model is not None


def calls_tools(settings: Settings) -> bool:
    """Tell whether functions are offered to the models that write."""
    own = settings.load(OpenAISettings)
    return place_of(own).is_openai if own.openai_tools is None else own.openai_tools


def lacks(settings: Settings) -> str:
    """Say what is missing; empty where a key or a server is set, if only for a part.

    Raises SettingError where a character's file would have the operator's key sent to its own server.
    """
    reject_redirected_key(settings, server=SERVER, key=KEY)
    for part in APART:
        url, own_key = f"OPENAI_{part}_URL", f"OPENAI_{part}_API_KEY"
        reject_redirected_key(settings, server=url, key=own_key if own_key in settings else KEY)
        if url not in settings:
            reject_redirected_key(settings, server=SERVER, key=own_key)
    if any(name in settings for name in (KEY, SERVER, *(f"OPENAI_{part}_URL" for part in APART))):
        return ""
    return f"set {KEY}, or {SERVER} for a server of your own, in .env"


def promise(settings: Settings) -> str:
    """Tell people where what they say is sent."""
    own = settings.load(OpenAISettings)
    sent: dict[str, list[str]] = {}
    for part, what in SENT.items():
        place = place_of(own, part)
        if model_of(own, part) if part else place.is_known:
            sent.setdefault(host_label(place.url or f"https://{OWN_HOST}"), []).append(what)
    return " ".join(f"Sent to {host}: {', '.join(what)}." for host, what in sent.items())
