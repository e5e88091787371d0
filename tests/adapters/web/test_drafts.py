"""Replies that wait for a person over HTTP: list, send, edit and drop."""

from typing import Any

from tests.adapters.web.conftest import RunningServer, ServerFactory

SETTINGS = {"APPROVAL": "all"}


async def propose(server: RunningServer, text: str = "Hello") -> Any:
    """Send a message, and return the draft of its answer."""
    await server.send(text, room="porch")
    drafts = (await server.get("/api/drafts?agent=ada"))["drafts"]
    return drafts[-1]


async def test_a_draft_is_listed_with_its_question_and_sent_once(open_server: ServerFactory) -> None:
    async with open_server(settings=SETTINGS) as server:
        draft = await propose(server)
        assert (draft["state"], draft["reason"], draft["question"]) == ("waiting", "APPROVAL=all", "Hello")
        assert (draft["room"], draft["text"]) == ("porch", "You said: Hello")
        sent = await server.post(f"/api/drafts/{draft['id']}/send", {"revision": draft["revision"]})
        assert (sent["state"], sent["decided_by"]) == ("sent", "an operator")
        refused = await server.post(f"/api/drafts/{draft['id']}/drop", {}, 409)
        assert refused["error"]["message"] == f"Draft {draft['id']} was already sent by an operator."
        assert (await server.get("/api/drafts"))["drafts"] == []
        assert len((await server.get("/api/drafts?state=sent"))["drafts"]) == 1


async def test_an_edited_draft_refuses_decisions_about_its_earlier_text(open_server: ServerFactory) -> None:
    async with open_server(settings=SETTINGS) as server:
        draft = await propose(server)
        edited = await server.post(f"/api/drafts/{draft['id']}/edit", {"text": "Good day"})
        assert (edited["text"], edited["proposed"], edited["revision"]) == ("Good day", "You said: Hello", 2)
        refused = await server.post(f"/api/drafts/{draft['id']}/send", {"revision": 1}, 409)
        assert refused["error"]["code"] == "conflict"
        reserved = await server.post(f"/api/drafts/{draft['id']}/edit", {})
        assert (reserved["editor"], reserved["revision"]) == ("an operator", 2)


async def test_an_unknown_draft_is_not_found(web_server: RunningServer) -> None:
    for decision in ("send", "edit", "drop"):
        assert (await web_server.post(f"/api/drafts/nothing/{decision}", {}, 404))["error"]["code"] == "not_found"
