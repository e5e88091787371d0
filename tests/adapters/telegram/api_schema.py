"""Check of calls and results against the published description of the Bot API."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

PRIMITIVE_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "Integer": int,
    "String": str,
    "Boolean": bool,
    "True": bool,
    "Float": (int, float),
}
SAMPLES: Mapping[str, Any] = {"Integer": 7, "String": "x", "Boolean": True, "True": True, "Float": 1.5}
CONSTANT_PATTERN = re.compile(r"[Aa]lways [“\"](\w+)")


class ApiSchema:
    """The parameters of all methods and the fields of all types, from the published description."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._methods: Mapping[str, Any] = data["methods"]
        self._types: Mapping[str, Any] = data["types"]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load the machine-readable description from a JSON file."""
        return cls(json.loads(path.read_text(encoding="utf-8")))

    def find_problems(
        self, method: str, parameters: Mapping[str, Any], files: Mapping[str, Any], result: Any
    ) -> list[str]:
        """Return the problems of a call and of its result."""
        return self.find_call_problems(method, parameters, files) + self.find_result_problems(method, result)

    def find_call_problems(self, method: str, parameters: Mapping[str, Any], files: Mapping[str, Any]) -> list[str]:
        """Return the problems of a call."""
        method_schema = self._methods.get(method)
        if method_schema is None:
            return [f"{method}: there is no such method"]
        fields = {field["name"]: field for field in method_schema.get("fields", ())}
        problems = [f"{method}: {name} is no parameter" for name in parameters if name not in fields]
        for name, field in fields.items():
            if field["required"] and name not in parameters and name not in files:
                problems.append(f"{method}: {name} is missing")
            if name in parameters and name not in files:
                problems += self._check_value(f"{method}.{name}", parameters[name], field["types"])
        return problems

    def find_result_problems(self, method: str, result: Any) -> list[str]:
        """Return the problems of a result."""
        method_schema = self._methods.get(method)
        return [] if method_schema is None else self._check_value(f"{method}()", result, method_schema["returns"])

    def _check_value(self, path: str, value: Any, types: list[str]) -> list[str]:
        problems = [list(self._check_type(path, value, type_name)) for type_name in types]
        return min(problems, key=len, default=[])

    def _check_type(self, path: str, value: Any, type_name: str) -> Iterator[str]:
        type_schema = self._types.get(type_name, {})
        if type_name.startswith("Array of ") and isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._check_value(f"{path}[{index}]", item, [type_name.removeprefix("Array of ")])
        elif type_name in PRIMITIVE_TYPES and isinstance(value, PRIMITIVE_TYPES[type_name]):
            return
        elif "subtypes" in type_schema:
            yield from self._check_value(path, value, type_schema["subtypes"])
        elif isinstance(value, dict) and type_name not in PRIMITIVE_TYPES:
            yield from self._check_object(path, value, type_name, type_schema)
        elif type_name != "InputFile" or not isinstance(value, str):
            yield f"{path}: {type(value).__name__} for {type_name}"

    def _check_object(
        self, path: str, value: Mapping[str, Any], type_name: str, type_schema: Mapping[str, Any]
    ) -> Iterator[str]:
        fields = {field["name"]: field for field in type_schema.get("fields", ())}
        yield from (f"{path}: {name} is no field of {type_name}" for name in value if name not in fields)
        for name, field in fields.items():
            if name in value:
                yield from self._check_value(f"{path}.{name}", value[name], field["types"])
            elif field["required"]:
                yield f"{path}: {name} is missing in {type_name}"

    def fields_of(self, type_name: str) -> Mapping[str, Any]:
        """Return the fields of a type by name."""
        return {field["name"]: field for field in self._types[type_name].get("fields", ())}

    def build_samples(self, type_name: str, depth: int) -> Iterator[Any]:
        """Yield a valid value of a type, or one of each of its subtypes; optional fields are set down to `depth`."""
        if type_name.startswith("Array of "):
            yield [next(self.build_samples(type_name.removeprefix("Array of "), depth))]
        elif type_name in SAMPLES:
            yield SAMPLES[type_name]
        elif subtypes := self._types[type_name].get("subtypes"):
            for subtype in subtypes:
                yield from self.build_samples(subtype, depth)
        else:
            yield {
                name: _constant_of(field) or next(self.build_samples(field["types"][0], depth - 1))
                for name, field in self.fields_of(type_name).items()
                if field["required"] or depth > 0
            }


def _constant_of(field: Mapping[str, Any]) -> str:
    """Return the only value that a field has according to its description; blank without one."""
    match = CONSTANT_PATTERN.search(field["description"])
    return match[1] if match is not None and field["types"] == ["String"] else ""
