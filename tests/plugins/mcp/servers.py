"""The servers of the tests, as they are configured."""

import json
import sys
from pathlib import Path
from typing import Any

from bot import Role

HERE = Path(__file__).parent
ANYBODY: dict[str, Any] = {"role": Role.NONE.value, "confirm": False}


def describe_tool(name: str, *properties: str, **schema: Any) -> dict[str, Any]:
    """Return a tool as a server lists it, with text parameters of these names."""
    texts = {key: {"type": "string", "description": f"The {key}."} for key in properties}
    return {
        "name": name,
        "description": f"Do {name}.",
        "inputSchema": {"type": "object", "properties": texts, "required": list(properties), **schema},
    }


class RawServer:
    """The raw server: the file of its tools, and what is configured for it."""

    def __init__(self, folder: Path) -> None:
        self.record = folder / "record.txt"
        self._tools = folder / "tools.json"
        self.config: dict[str, Any] = {
            "command": sys.executable,
            "args": ["-I", str(HERE / "raw_server.py"), str(self._tools)],
            "env": {"RECORD": str(self.record)},
            "timeout": 1,
            "tools": {"*": ANYBODY},
        }

    def offer(self, *tools: dict[str, Any]) -> None:
        """Set the tools of the next listing."""
        self.offer_text(json.dumps(tools))

    def offer_text(self, text: str) -> None:
        """Set the JSON of the next listing."""
        self._tools.write_text(text, encoding="utf-8")

    def recorded(self) -> list[str]:
        """Return the keys that were recorded."""
        return self.record.read_text(encoding="utf-8").split() if self.record.exists() else []
