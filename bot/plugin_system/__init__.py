"""Public module: what a plugin declares beside its components."""

from bot.plugin_system.declarations import ComponentType, PluginTest, PluginTestSuite

__all__ = ["ComponentType", "PluginTest", "PluginTestSuite"]
