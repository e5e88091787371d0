import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator


@pytest.mark.long
async def test_every_reference_resolves(web_server: Any) -> None:
    described = await web_server.get("/api/openapi.json")
    schemas = described["components"]["schemas"]
    references = [part.split('"')[0] for part in json.dumps(described).split('"$ref": "')[1:]]
    assert references
    for reference in references:
        assert reference.removeprefix("#/components/schemas/") in schemas
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


async def test_every_route_of_the_api_is_described(web_server: Any) -> None:
    described = (await web_server.get("/api/openapi.json"))["paths"]
    served = {resource.canonical for resource in web_server.adapter.app.router.resources()}
    assert set(described) == {path for path in served if path.startswith(("/api/", "/healthz", "/metrics"))}


async def test_the_request_schema_matches_the_validation(web_server: Any) -> None:
    schema = (await web_server.get("/api/openapi.json"))["components"]["schemas"]["MessageRequest"]
    assert "required" not in schema  # a text or attachments
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"text", "room", "user", "idempotency_key", "stream", "attachments"}
