"""Console adapter: one user and one room in the terminal; every message is answered."""

from adapters.console.config import ConsoleSettings
from bot.platform import AdapterSpec, LazyImport

spec = AdapterSpec("console", LazyImport("adapters.console.adapter:open_console"), ConsoleSettings)
