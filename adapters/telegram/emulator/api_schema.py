"""The published description of the Bot API, held against what is asked and answered."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

SIMPLE: Mapping[str, type | tuple[type, ...]] = {
    "Integer": int,
    "String": str,
    "Boolean": bool,
    "True": bool,
    "Float": (int, float),
}


class Description:
    """Knows every method's parameters and every type's fields; the file is the one that names both."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._methods: Mapping[str, Any] = told["methods"]
        self._types: Mapping[str, Any] = told["types"]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the machine-readable description from a file of JSON."""
        return cls(json.loads(path.read_text(encoding="utf-8")))

    def of_call(self, method: str, parameters: Mapping[str, Any], files: Mapping[str, Any]) -> list[str]:
        """Tell what is wrong with a call."""
        described = self._methods.get(method)
        if described is None:
            return [f"{method}: there is no such method"]
        fields = {one["name"]: one for one in described.get("fields", ())}
        found = [f"{method}: {name} is no parameter" for name in parameters if name not in fields]
        for name, one in fields.items():
            if one["required"] and name not in parameters and name not in files:
                found.append(f"{method}: {name} is missing")
            if name in parameters and name not in files:
                found += self._of_value(f"{method}.{name}", parameters[name], one["types"])
        return found

    def of_result(self, method: str, result: Any) -> list[str]:
        """Tell what is wrong with an answer."""
        described = self._methods.get(method)
        return [] if described is None else self._of_value(f"{method}()", result, described["returns"])

    def _of_value(self, where: str, value: Any, types: list[str]) -> list[str]:
        problems = [list(self._against(where, value, one)) for one in types]
        return min(problems, key=len, default=[])

    def _against(self, where: str, value: Any, kind: str) -> Iterator[str]:
        described = self._types.get(kind, {})
        if kind.startswith("Array of ") and isinstance(value, list):
            for place, one in enumerate(value):
                yield from self._of_value(f"{where}[{place}]", one, [kind.removeprefix("Array of ")])
        elif kind in SIMPLE and isinstance(value, SIMPLE[kind]):
            return
        elif "subtypes" in described:
            yield from self._of_value(where, value, described["subtypes"])
        elif isinstance(value, dict) and kind not in SIMPLE:
            yield from self._of_object(where, value, kind, described)
        elif kind != "InputFile" or not isinstance(value, str):
            yield f"{where}: {type(value).__name__} for {kind}"

    def _of_object(
        self, where: str, value: Mapping[str, Any], kind: str, described: Mapping[str, Any]
    ) -> Iterator[str]:
        fields = {one["name"]: one for one in described.get("fields", ())}
        yield from (f"{where}: {name} is no field of {kind}" for name in value if name not in fields)
        for name, one in fields.items():
            if name in value:
                yield from self._of_value(f"{where}.{name}", value[name], one["types"])
            elif one["required"]:
                yield f"{where}: {name} is missing in {kind}"
