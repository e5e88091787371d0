"""The terminal as a platform: one person, one room, every message answered."""

from adapters.console.adapter import open_console
from adapters.console.config import ConsoleSettings
from bot import AdapterSpec

adapter = AdapterSpec("console", open_console, ConsoleSettings)
