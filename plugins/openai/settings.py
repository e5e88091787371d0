"""The variables of the openai plugin."""

from pydantic import Field

from bot import Secret, SettingError, Settings, SettingsModel


class OpenAISettings(SettingsModel):
    """Which server, with which key, and which models."""

    openai_api_key: Secret | None = Field(None, description="The key. Not needed for most local servers.")
    openai_base_url: str | None = Field(
        None,
        pattern="^https?://",
        description="Another server that speaks the same API, e.g. http://127.0.0.1:11434/v1 for Ollama.",
    )
    openai_small_model: str = Field("gpt-4o-mini", description="Decides whether to answer; cheap and quick.")
    openai_large_model: str = Field("gpt-4o", description="Writes the answers.")


def lacks(settings: Settings) -> str:
    """Say what is missing; empty where a key or a server is set.

    Raises SettingError where a character's file would have the operator's key sent to its own server.
    """
    operator = settings.of_operator()
    has_own_server = settings.get("OPENAI_BASE_URL") != operator.get("OPENAI_BASE_URL")
    has_own_key = settings.get("OPENAI_API_KEY") != operator.get("OPENAI_API_KEY")
    if has_own_server and not has_own_key and "OPENAI_API_KEY" in operator:
        raise SettingError(
            "OPENAI_BASE_URL (in the character's file) would send your OPENAI_API_KEY to that server: if you "
            "trust it, put OPENAI_BASE_URL into .env too; else take it out of the file"
        )
    if "OPENAI_API_KEY" in settings or "OPENAI_BASE_URL" in settings:
        return ""
    return "set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own, in .env"
