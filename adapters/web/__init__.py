"""The browser and the HTTP API as a platform: one server, one page, every character of the process."""

from adapters.web.config import WebSettings
from bot.platform import AdapterSpec, Deferred

spec = AdapterSpec("web", Deferred("adapters.web.adapter:open_web"), WebSettings)
