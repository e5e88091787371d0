"""The terminal as a platform: one person, one room, every message answered."""

from adapters.console.config import ConsoleSettings
from bot.platform import AdapterSpec, LazyImport

spec = AdapterSpec("console", LazyImport("adapters.console.adapter:open_console"), ConsoleSettings)
