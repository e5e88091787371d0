"""Public module: what a plugin declares beside its components, and what its HTTP routes use."""

from bot.plugin_system.declarations import ComponentType, PluginTest, PluginTestSuite, WorldSetting
from bot.plugin_system.routes import WebhookSignature, static_folder

__all__ = ["ComponentType", "PluginTest", "PluginTestSuite", "WebhookSignature", "WorldSetting", "static_folder"]
