"""The browser and the HTTP API as a platform: one server, one page, every character of the process."""

from adapters.web.adapter import open_web
from adapters.web.config import WebSettings
from bot import AdapterSpec

adapter = AdapterSpec("web", open=open_web, settings=WebSettings)
