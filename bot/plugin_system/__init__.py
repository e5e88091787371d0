"""Public module: what a plugin declares beside its components, and what its HTTP routes use."""

from bot.plugin_system.components import WebhookSignature, static_folder
from bot.plugin_system.plugin import ComponentType, PluginTest, PluginTestSuite, WorldSetting

__all__ = ["ComponentType", "PluginTest", "PluginTestSuite", "WebhookSignature", "WorldSetting", "static_folder"]
