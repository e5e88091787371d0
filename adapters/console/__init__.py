"""The terminal as a platform: one person, one room, every message answered."""

from adapters.console.config import ConsoleSettings
from bot import AdapterSpec, Deferred

adapter = AdapterSpec("console", Deferred("adapters.console.adapter:open_console"), ConsoleSettings)
