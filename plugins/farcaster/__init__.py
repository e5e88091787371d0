"""Farcaster plugin: reads the newest casts of an account from a hub, without a key."""

from bot import Plugin
from plugins.farcaster.reading import missing_settings, read_casts

plugin = Plugin(
    "farcaster",
    "Reads the newest casts of an account on Farcaster; the adapter of this name connects an account.",
    actions=[read_casts],
    missing_settings=missing_settings,
)
