"""The browser and the HTTP API as a platform: one server, one page, every character of the process."""

from adapters.web.config import WebSettings
from bot.platform import AdapterSpec, LazyImport

spec = AdapterSpec(
    "web",
    LazyImport("adapters.web.adapter:open_web"),
    WebSettings,
    serves_clients=True,
    build_conversation=LazyImport("adapters.web.incoming:build_imported_conversation"),
)
