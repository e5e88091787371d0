"""Trust in the plugins that tests write next to their characters, and two of them that cannot be used together."""

from pathlib import Path

from bot.plugin_system.trust import TrustedPlugins, read_plugin_source

CLASHING = """
from bot import Plugin, Turn, action

@action("ROLL_DICE", "Roll.")
async def roll(turn: Turn) -> None:
    pass

plugin = Plugin("{name}", "Rolls.", actions=[roll])
"""


def trust_code(folder: Path, data_folder: Path = Path("data")) -> None:
    """Trust all plugins in a folder as they are now, for every character in it."""
    paths = [*folder.glob("*.py"), *(file.parent for file in folder.glob("*/__init__.py"))]
    TrustedPlugins(data_folder).trust([read_plugin_source(path, path.name) for path in sorted(paths)])


def write_clashing_plugins(folder: Path) -> None:
    """Write `ada.json` with two trusted plugins that bring an action of the same name."""
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(CLASHING.replace("{name}", name), encoding="utf-8")
    (folder / "ada.json").write_text('{"name": "Ada", "plugins": ["./one", "./two"]}', encoding="utf-8")
    trust_code(folder)
