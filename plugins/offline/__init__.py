"""Offline plugin: answers from patterns, without a key or a network."""

from pydantic import Field

from bot import Plugin, SettingsModel
from plugins.offline.models import embed_texts, generate_text

NOTICE = (
    "offline model: {name} answers from built-in patterns, without a language model. For a real one run "
    "`bot init`; without a key `bot init --local-model FILE` runs a model file on this computer (docs/models.md)"
)


class OfflineSettings(SettingsModel):
    """Settings of the built-in responder."""

    CHARACTER_SETTINGS = frozenset({"OFFLINE_SEED"})

    offline_seed: int = Field(0, description="Seed of the choice of wordings; the same seed gives the same answers.")


plugin = Plugin(
    "offline",
    "Answers from built-in patterns: no key, no network, no language model.",
    models=[generate_text, embed_texts],
    settings=OfflineSettings,
    notice=NOTICE,
    priority=-100,
)
