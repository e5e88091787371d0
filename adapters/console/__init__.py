"""The terminal as a platform: one person, one room, every message answered."""

from adapters.console.config import ConsoleSettings
from bot.platform import AdapterSpec, Deferred

spec = AdapterSpec("console", Deferred("adapters.console.adapter:open_console"), ConsoleSettings)
