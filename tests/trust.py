"""Trust in the plugins that tests write next to their characters."""

from pathlib import Path

from bot.plugin_system.trust import TrustedPlugins, read_plugin_source


def trust_code(folder: Path, data_folder: Path = Path("data")) -> None:
    """Trust all plugins in a folder as they are now, for every character in it."""
    paths = [*folder.glob("*.py"), *(file.parent for file in folder.glob("*/__init__.py"))]
    TrustedPlugins(data_folder).trust([read_plugin_source(path, path.name) for path in sorted(paths)])
