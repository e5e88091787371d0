"""Rules of the schemas of tools: whatever a server lists, strict providers accept what is sent."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bot.models import TextRequest, Tool
from bot.testing import ScriptedModel, model_answer, running_agent
from plugins.anthropic import plugin as anthropic
from plugins.google import plugin as google
from plugins.google.models import gemini_schema
from plugins.mcp.tool_schemas import provider_schema, safe_names, simplify_schema
from plugins.openai import plugin as openai
from tests.plugins.loopback import Answer, Asked, loopback
from tests.plugins.mcp.conftest import Open
from tests.plugins.mcp.servers import RawServer
from tests.plugins.mcp.strict_providers import check_anthropic, check_gemini, check_openai
from tests.plugins.mcp.test_mcp import call

pytestmark = pytest.mark.filterwarnings("ignore:.*BaseSubprocessTransport:pytest.PytestUnraisableExceptionWarning")


def of(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties."""
    return {"type": "object", "properties": properties}


TREE = {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}, "right": {"$ref": "#/$defs/T"}}}
DEEP: dict[str, Any] = {}
for _ in range(40):
    DEEP = {"type": "object", "properties": {"a": DEEP}}

SCHEMAS: dict[str, Any] = {
    "array_without_items": of(a={"type": "array"}),
    "array_items_true": of(a={"type": "array", "items": True}),
    "array_items_false": of(a={"type": "array", "items": False}),
    "array_items_list": of(a={"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}),
    "array_items_empty_list": of(a={"type": "array", "items": []}),
    "array_items_null": of(a={"type": "array", "items": None}),
    "array_of_arrays": of(a={"type": "array", "items": {"type": "array"}}),
    "prefix_items": of(a={"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "items": False}),
    "boolean_property": of(a=True, b=False),
    "null_property": of(a=None),
    "type_list": of(a={"type": ["string", "null"]}),
    "type_list_of_many": of(a={"type": ["string", "integer", "array", "object", "null"]}),
    "type_list_empty": of(a={"type": []}),
    "type_unknown": of(a={"type": "file"}, b={"type": "str"}, c={"type": "String"}, d={"type": 7}),
    "type_missing": of(a={"description": "What?"}, b={"items": {"type": "string"}}, c={"properties": {"d": {}}}),
    "type_null": of(a={"type": "null"}),
    "type_any": of(a={"type": "any"}),
    "ref": {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "array"}}},
    "ref_definitions": {**of(a={"$ref": "#/definitions/A~1B"}), "definitions": {"A/B": {"enum": ["x"]}}},
    "ref_with_description": {**of(a={"$ref": "#/$defs/A", "description": "The A."}), "$defs": {"A": {}}},
    "ref_missing": of(a={"$ref": "#/$defs/Nothing"}),
    "ref_elsewhere": of(a={"$ref": "https://example.org/schema.json"}),
    "ref_to_root": of(a={"$ref": "#"}, b={"type": "string"}),
    "ref_to_property": of(a={"type": "string"}, b={"$ref": "#/properties/a"}),
    "ref_to_itself": {**of(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"$ref": "#/$defs/A"}}},
    "ref_tree": {**of(tree={"$ref": "#/$defs/T"}), "$defs": {"T": TREE}},
    "ref_not_text": of(a={"$ref": 7}),
    "ref_at_root": {"$ref": "#/$defs/A", "$defs": {"A": of(a={"type": "string"})}},
    "name_empty": of(**{"": {"type": "string"}}),
    "name_space": of(**{"file path": {"type": "string"}}),
    "name_dot": of(**{"a.b": {"type": "string"}, "a/b": {"type": "string"}, "a[b]": {"type": "string"}}),
    "name_unicode": of(日本={"type": "string"}, naïve={"type": "string"}),
    "name_dollar": of(**{"$filter": {"type": "string"}, "$top": {"type": "integer"}, "@type": {}}),
    "name_long": of(**{"x" * 100: {"type": "string"}, "x" * 101: {"type": "string"}}),
    "name_case": of(id={"type": "string"}, ID={"type": "string"}, Id={"type": "string"}),
    "name_collision": of(**{"a b": {}, "a_b": {}, "a-b": {}, "a/b": {}}),
    "name_nested": of(a=of(**{"b c": {"type": "string"}})),
    "name_required": {**of(**{"file path": {"type": "string"}}), "required": ["file path"]},
    "enum_mixed": of(a={"enum": ["a", 1, None, True]}),
    "enum_mixed_typed": of(a={"type": "string", "enum": ["a", 1, None]}),
    "enum_numbers": of(a={"type": "integer", "enum": [1, 2, 3]}),
    "enum_null_only": of(a={"enum": [None]}),
    "enum_empty": of(a={"type": "string", "enum": []}),
    "enum_empty_text": of(a={"type": "string", "enum": ["", "a"]}),
    "enum_twice": of(a={"type": "string", "enum": ["a", "a"]}),
    "enum_huge": of(a={"type": "string", "enum": [f"value {n}" for n in range(5_000)]}),
    "enum_long": of(a={"type": "string", "enum": ["x" * 10_000]}),
    "enum_objects": of(a={"enum": [{"a": 1}, [2]]}),
    "enum_boolean": of(a={"type": "boolean", "enum": [True]}),
    "enum_object": of(a={"enum": {"a": 1}}),
    "const_text": of(a={"const": "x"}),
    "const_number": of(a={"type": "integer", "const": 7}, b={"const": None}, c={"const": {"d": 1}}),
    "default_null": of(a={"type": "string", "default": None}),
    "default_wrong": of(a={"type": "integer", "default": "many"}),
    "required_unknown": {**of(a={"type": "string"}), "required": ["b", "a", "a"]},
    "required_true": of(a={"type": "string", "required": True}),
    "required_null": {**of(a={"type": "string"}), "required": None},
    "required_text": {**of(a={"type": "string"}), "required": "a"},
    "required_numbers": {**of(a={"type": "string"}), "required": [1, None, "a"]},
    "description_list": of(a={"type": "string", "description": ["a", "b"]}),
    "description_null": {**of(a={"type": "string", "description": None}), "description": 7},
    "description_long": of(a={"type": "string", "description": "x" * 50_000}),
    "format_odd": of(a={"type": "string", "format": "uri-template"}, b={"type": "integer", "format": "uint8"}),
    "limits": of(a={"type": "integer", "exclusiveMinimum": 0, "multipleOf": 2}, b={"type": "string", "minLength": 1}),
    "limits_draft4": of(a={"type": "integer", "minimum": 0, "exclusiveMinimum": True}),
    "pattern": of(a={"type": "string", "pattern": "(a+)+$"}),
    "pattern_properties": of(a={"type": "object", "patternProperties": {"^x": {"type": "string"}}}),
    "additional_schema": of(a={"type": "object", "additionalProperties": {"type": "string"}}),
    "additional_false": {**of(a={"type": "string"}), "additionalProperties": False},
    "object_bare": of(a={"type": "object"}),
    "object_empty": of(a=of()),
    "any_of_one": of(a={"anyOf": [{"type": "string"}], "description": "A."}),
    "any_of_null": of(a={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}),
    "any_of_objects": of(a={"anyOf": [of(b={"type": "string"}), of(c={"type": "array"})]}),
    "any_of_empty": of(a={"type": "string", "anyOf": []}),
    "any_of_true": of(a={"type": "string", "anyOf": [True, {"type": "string"}]}),
    "any_of_required": of(a={**of(b={}, c={}), "anyOf": [{"required": ["b"]}, {"required": ["c"]}]}),
    "any_of_no_list": of(a={"anyOf": {"type": "string"}}),
    "one_of_enum": of(a={"oneOf": [{"const": "x", "title": "X"}, {"const": "y", "title": "Y"}]}),
    "all_of": of(a={"allOf": [of(b={"type": "string"}), {**of(c={}), "required": ["c"]}]}),
    "all_of_ref": {**of(a={"allOf": [{"$ref": "#/$defs/A"}], "default": 1}), "$defs": {"A": {"type": "integer"}}},
    "not_if_then": of(a={"type": "string", "not": {"const": "x"}, "if": {}, "then": {}, "else": {}}),
    "dependent": {**of(a={}, b={}), "dependentRequired": {"a": ["b"]}, "dependencies": {"a": ["b"]}},
    "nullable": of(a={"type": "string", "nullable": True}, b={"type": "object", "nullable": True}),
    "root_any_of": {"anyOf": [of(a={"type": "string"}), of(b={"type": "integer"})]},
    "root_one_of": {**of(a={}), "oneOf": [{"required": ["a"]}, of(b={})]},
    "root_all_of": {"allOf": [of(a={"type": "string"}), of(b={"type": "array"})]},
    "root_not": {**of(a={}), "not": {"required": ["a"]}},
    "root_enum": {**of(a={}), "enum": [{"a": 1}]},
    "root_type_list": {**of(a={}), "type": ["object", "null"]},
    "root_type_missing": {"properties": {"a": {"type": "string"}}},
    "root_type_null": {"type": None, "properties": None},
    "root_empty": {},
    "root_null": None,
    "root_true": True,
    "root_number": 7,
    "root_list": [],
    "properties_list": {"type": "object", "properties": [{"name": "a"}]},
    "properties_texts": of(a="string", b=["string"], c=7),
    "schema_number": {**of(a={}), "$schema": 7, "$id": 8, "$comment": "x"},
    "deep": DEEP,
}
REFUSED = {"root_array": {"type": "array", "items": {"type": "string"}}, "root_string": {"type": "string"}}
TOOLS = [{"name": name, "description": "Do it.", "inputSchema": schema} for name, schema in SCHEMAS.items()]
ODD_TOOLS = [
    {"name": name, "description": "Do it.", "inputSchema": schema} for name, schema in REFUSED.items()
] + [
    {"name": "no_schema"},
    {"name": "odd_description", "description": 7, "inputSchema": {}},
    {"name": "odd_rest", "inputSchema": {}, "annotations": 7, "icons": "x", "title": [], "outputSchema": []},
    {"name": None, "inputSchema": {}},
    {"inputSchema": {}},
    7,
]  # fmt: skip


class Strict:
    """A model server that refuses requests with a tool that breaks a published rule."""

    def __init__(
        self, check: Callable[[Mapping[str, Any]], str], tools_of: Callable[[Any], list[Any]], answer: Any
    ) -> None:
        self._check, self._tools_of, self._answer = check, tools_of, answer
        self.problems: list[str] = []
        self.names: set[str] = set()

    def __call__(self, asked: Asked) -> Answer:
        for tool in self._tools_of(asked.json):
            self.names.add((tool.get("function") or tool)["name"])
            if problem := self._check(tool):
                self.problems.append(f"{json.dumps(tool)}: {problem}")
        if self.problems:
            return Answer({"error": {"message": f"Invalid tools: {self.problems[-1]}", "code": 400}}, 400)
        return Answer(self._answer)


def list_declarations(body: Any) -> list[Any]:
    """Return the function declarations of a request to Gemini."""
    tools = body.get("tools", [])
    return [item for tool in tools for item in tool.get("functionDeclarations", tool.get("function_declarations", []))]


TEXT = model_answer("Said.")
GEMINI_ANSWER = {"candidates": [{"content": {"role": "model", "parts": [{"text": TEXT}]}, "finishReason": "STOP"}]}
PROVIDERS = {
    "openai": (
        openai,
        {"OPENAI_API_KEY": "k", "OPENAI_LARGE_MODEL": "m", "OPENAI_SMALL_MODEL": "m"},
        "OPENAI_BASE_URL",
        check_openai,
        lambda body: body.get("tools", []),
        {"model": "m", "choices": [{"message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}]},
    ),
    "anthropic": (
        anthropic,
        {"ANTHROPIC_API_KEY": "k"},
        "ANTHROPIC_BASE_URL",
        check_anthropic,
        lambda body: body.get("tools", []),
        {"type": "message", "content": [{"type": "text", "text": TEXT}], "stop_reason": "end_turn"},
    ),
    "google": (
        google,
        {"GOOGLE_GENERATIVE_AI_API_KEY": "k"},
        "GOOGLE_GENERATIVE_AI_BASE_URL",
        check_gemini,
        list_declarations,
        GEMINI_ANSWER,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PROVIDERS)
async def test_strict_providers_accept_the_tools_of_any_server(
    name: str, raw_server: RawServer, open_agent: Open
) -> None:
    model_plugin, given, url_variable, check, tools_of, answer = PROVIDERS[name]
    raw_server.offer(*TOOLS, *ODD_TOOLS)  # type: ignore[arg-type]  # one is no object
    async with open_agent({"raw": raw_server.config}) as agent_harness:
        tools = tuple(
            Tool(spec.name, spec.description, spec.parameters) for spec in agent_harness.agent.catalog.actions
        )
    server = Strict(check, tools_of, answer)
    async with loopback() as listening:
        listening.answers = server
        settings = {**given, url_variable: f"{listening.url}/v1" if name == "openai" else listening.url}
        async with running_agent(model_plugin, model=ScriptedModel(lambda request: ""), settings=settings) as harness:
            result = await harness.agent.models.text(TextRequest("hi", tools=tools))

    assert server.problems == []
    assert result.text == TEXT
    listed = {f"RAW_{name.upper()}" for name in (*SCHEMAS, "no_schema", "odd_description", "odd_rest")}
    assert listed - server.names == set()
    assert not server.names & {f"RAW_{name.upper()}" for name in REFUSED}


@pytest.mark.long
async def test_an_agent_with_such_tools_answers(raw_server: RawServer, open_agent: Open) -> None:
    raw_server.offer(*TOOLS, *ODD_TOOLS)  # type: ignore[arg-type]  # one is no object
    async with open_agent({"raw": raw_server.config}) as agent_harness:
        await agent_harness.send("hello")

    assert len(agent_harness.texts) == 1


async def test_a_tool_whose_parameters_are_no_object_is_reported(
    raw_server: RawServer, open_agent: Open, caplog: pytest.LogCaptureFixture
) -> None:
    raw_server.offer(*ODD_TOOLS)  # type: ignore[arg-type]  # one is no object
    async with open_agent({"raw": raw_server.config}):
        pass

    assert "the tool 'root_array' of an MCP server is left out: its parameters are no object" in caplog.text


async def test_names_are_mapped_back_before_a_tool_is_called(raw_server: RawServer, open_agent: Open) -> None:
    inner = {**of(**{"b c": {"type": "integer"}}), "required": ["b c"]}
    schema = of(
        **{
            "file path": {"type": "string"},
            "$top": {"type": "integer"},
            "ids": {"type": "string"},
            "IDs": {"type": "string"},
            "list": {"type": "array", "items": inner},
            "choice": {"anyOf": [{"type": "string"}, inner]},
        }
    )
    raw_server.offer({"name": "echo", "inputSchema": schema})
    async with open_agent({"raw": raw_server.config}) as agent_harness:
        [spec] = [spec for spec in agent_harness.agent.catalog.actions if spec.plugin == "mcp"]
        result = await call(
            agent_harness, "RAW_ECHO", file_path="/a", top="3", ids="1", IDs_2="2", list=[{"b_c": 1}], choice={"b_c": 2}
        )
        with_original_names = await call(agent_harness, "RAW_ECHO", **{"file path": "/a"})

    assert set(spec.parameters["properties"]) == {"file_path", "top", "ids", "IDs_2", "list", "choice"}
    assert "x-original-name" not in json.dumps(spec.parameters)
    sent = {"file path": "/a", "$top": 3, "ids": "1", "IDs": "2", "list": [{"b c": 1}], "choice": {"b c": 2}}
    assert json.dumps(sent) in result.text
    assert '{"file path": "/a"}' in with_original_names.text


def test_safe_names_differ_in_more_than_case_and_keep_those_that_are_safe() -> None:
    names = ["a b", "a_b", "A_B", "", "日本", "x" * 100, "x" * 64, "ok-1"]
    safe = safe_names(names)

    assert len({name.lower() for name in safe.values()}) == len(names)
    assert all(len(name) <= 64 for name in safe.values())
    assert (safe["a_b"], safe["x" * 64], safe["ok-1"]) == ("a_b", "x" * 64, "ok-1")


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_accepted_by_all_after_a_single_repair(name: str) -> None:
    schema = SCHEMAS[name] if isinstance(SCHEMAS[name], dict) else {}
    simple = provider_schema(simplify_schema(schema))

    assert check_openai({"function": {"name": "f", "parameters": simple}}) == ""
    assert check_anthropic({"name": "f", "input_schema": simple}) == ""
    assert (
        check_gemini({"name": "f", "parameters": gemini_schema(simple)} if gemini_schema(simple) else {"name": "f"})
        == ""
    )
