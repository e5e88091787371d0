"""Public module: what a plugin declares beside its components."""

from bot.domain.component_specs import ComponentTypeSpec
from bot.errors import ComponentDataError
from bot.plugin_system.declarations import ComponentType, PluginTest, PluginTestSuite

__all__ = ["ComponentDataError", "ComponentType", "ComponentTypeSpec", "PluginTest", "PluginTestSuite"]
