"""Documents of a character over the API, and changes that are repeated with the same idempotency key."""

from typing import Any

import aiohttp
import pytest

from bot import Agent, Plugin, RouteRequest, RouteResponse, route
from plugins.knowledge import plugin as knowledge
from tests.adapters.web.conftest import RunningServer, ServerFactory


async def send(server: RunningServer, method: str, path: str, status: int = 200, key: str = "", **details: Any) -> Any:
    headers = {**server.bearer, **({"Idempotency-Key": key} if key else {})}
    answer = await server.request(method, path, headers=headers, **details)
    return await server.check_response(method, path, answer, status)


async def test_documents_are_added_listed_by_pages_and_deleted(open_server: ServerFactory) -> None:
    async with open_server(knowledge) as server:
        form = aiohttp.FormData()
        form.add_field("file", "Tea is brewed for three minutes.", filename="tea.txt")
        [tea] = (await send(server, "POST", "/api/documents", data=form))["documents"]
        await send(server, "POST", "/api/documents", json={"name": "coffee", "text": "Coffee takes four."})
        first = await server.get("/api/documents?limit=1")
        second = await server.get(f"/api/documents?limit=1&before={first['next']}")
        assert (first["is_available"], first["count"], first["parts"], second["next"]) == (True, 2, 2, None)
        listed = [*first["documents"], *second["documents"]]
        assert {item["name"]: item["bytes"] for item in listed} == {"tea.txt": 32, "coffee": 18}
        refused = await send(server, "POST", f"/api/documents/{tea['id']}/read", 409)
        assert "add the file again" in refused["error"]["message"]
        assert await send(server, "DELETE", f"/api/documents/{tea['id']}") == {"deleted": tea["id"]}
        await send(server, "DELETE", f"/api/documents/{tea['id']}", 404)


async def test_without_the_plugin_there_are_no_documents_and_the_answer_says_why(web_server: RunningServer) -> None:
    listed = await web_server.get("/api/documents")
    assert (listed["is_available"], listed["documents"]) == (False, [])
    assert "knowledge" in listed["why"]
    await send(web_server, "POST", "/api/documents", 409, json={"name": "a", "text": "b"})


@pytest.mark.failure("N-16")
async def test_a_change_that_is_repeated_with_its_key_is_done_once(open_server: ServerFactory) -> None:
    runs: list[str] = []

    @route("POST", "/documents")
    async def add(agent: Agent, request: RouteRequest) -> RouteResponse:
        runs.append(request.path)
        if len(runs) == 1:
            return RouteResponse(503, json={"error": {"code": "model_failed", "message": "later"}})
        return RouteResponse(json={"documents": []})

    @route("GET", "/documents")
    async def found(agent: Agent, request: RouteRequest) -> RouteResponse:
        return RouteResponse(json={"documents": []})

    @route("GET", "/search")
    async def search(agent: Agent, request: RouteRequest) -> RouteResponse:
        return RouteResponse(json={"passages": []})

    body = {"name": "a", "text": "b"}
    async with open_server(Plugin("library", routes=[add, found, search])) as server:
        await send(server, "POST", "/api/documents", 503, key="one", json=body)
        first = await send(server, "POST", "/api/documents", key="one", json=body)  # a failed one may be sent again
        assert await send(server, "POST", "/api/documents", key="one", json=body) == first
        assert len(runs) == 2
        other = await send(server, "POST", "/api/documents", 422, key="one", json={**body, "name": "c"})
        assert "another request" in other["error"]["message"]
        await send(server, "POST", "/api/documents", key="two", json=body)
        await send(server, "POST", "/api/documents", json=body)
        assert len(runs) == 4
