"""People over HTTP: who they are, what is remembered of them, who is not read, and what is owed to them."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import ClientResponse

from bot import (
    Component,
    Content,
    Entity,
    Memory,
    MemoryKind,
    MemoryScope,
    Plugin,
    Relationship,
    derived_id,
    model,
    system_clock,
)
from bot.domain.hiding import HIDDEN_TEXT
from bot.events import RunEnded
from bot.models import ModelType, Purpose, TextRequest, TextResult
from bot.platform import AccessTokens, TokenScope
from bot.store import InMemoryStore
from plugins.knowledge import plugin as knowledge
from tests.adapters.web.conftest import TOKEN, RunningServer, ServerFactory, run_server
from tests.adapters.web.test_files import upload
from tests.canaries import Canaries, find_canaries, open_file


@pytest.fixture
async def server(open_server: ServerFactory) -> AsyncIterator[RunningServer]:
    async with open_server(names=("Ada", "Bob")) as server:
        for user in ("eve", "finn", "gina"):
            await server.send(f"hello from {user}", user=user, room=f"den of {user}")
        await server.send("silence", user="eve", room="den of eve")
        yield server


async def person_named(server: RunningServer, name: str) -> Any:
    [person] = (await server.get(f"/api/people?q={name}"))["people"]
    return person


async def add_facts(server: RunningServer, person: Any, *texts: str, scope: MemoryScope = MemoryScope.ROOM) -> None:
    store = server.runtime.agents[0].agent.store
    [room] = [room for room in await store.worlds.rooms() if "eve" in room.external_id]
    fields = {"entity_id": UUID(person["id"]), "room_id": room.id, "world_id": room.world_id, "scope": scope}
    await store.memories.add(
        [
            Memory(
                derived_id("fact", text),
                MemoryKind.FACT,
                content=Content(text=text),
                created_at=system_clock(),
                **fields,
            )
            for text in texts
        ]
    )


async def request(server: RunningServer, method: str, path: str, **details: Any) -> ClientResponse:
    return await server.request(method, path, headers=server.bearer, **details)


async def change(server: RunningServer, method: str, path: str, status: int = 200, **details: Any) -> Any:
    answer = await request(server, method, path, **details)
    return await server.check_response(method, path, answer, status)


async def test_people_are_listed_the_last_who_wrote_first_page_by_page(server: RunningServer) -> None:
    people = (await server.get("/api/people"))["people"]
    assert [person["name"] for person in people] == ["eve", "gina", "finn"]
    assert (people[0]["messages"], people[0]["answered"], people[0]["facts"]) == (2, 1, 0)
    assert people[0]["first_at"] < people[0]["last_at"]
    assert people[0]["accounts"][0]["platform"] == "web"
    listed, query = [], "limit=1"
    while query:
        page = await server.get(f"/api/people?{query}")
        listed += page["people"]
        query = page["next"] and f"limit=1&before={page['next']}"
    assert listed == people


async def test_people_are_found_by_name_and_platform_and_by_agent(server: RunningServer) -> None:
    assert [person["name"] for person in (await server.get("/api/people?q=IN"))["people"]] == ["gina", "finn"]
    assert (await server.get("/api/people?platform=discord"))["people"] == []
    assert (await server.get("/api/people?agent=bob"))["people"] == []
    await server.send("hello", user="eve", agent="bob")
    assert {person["name"] for person in (await server.get("/api/people?agent=bob"))["people"]} == {"eve"}
    for cursor in ("x", "%F0", "MjAyNi0wMS0wMQ"):
        await server.get(f"/api/people?before={cursor}", 422)


async def test_a_person_is_shown_with_roles_contacts_and_relationships(server: RunningServer) -> None:
    eve, finn = await person_named(server, "eve"), await person_named(server, "finn")
    entities = server.runtime.agents[0].agent.store.entities
    data = {"email": "eve@example.org"}
    await entities.save_component(
        Component(uuid4(), UUID(eve["id"]), "contact", data, source_entity_id=UUID(finn["id"]))
    )
    await entities.save_relationship(Relationship(UUID(eve["id"]), UUID(finn["id"]), ("friend",), 7))
    shown = await server.get(f"/api/people/{eve['id']}")
    assert shown["name"] == "eve"
    assert [(role["role"], [room["name"] for room in role["rooms"]]) for role in shown["roles"]] == [
        ("MEMBER", ["den of eve"])
    ]
    assert (shown["contacts"][0]["details"], shown["contacts"][0]["stated_by"]) == (data, "finn")
    assert shown["relationships"] == [{"id": finn["id"], "name": "finn", "interactions": 7, "tags": ["friend"]}]
    agent_id = (await server.get("/api/agents"))["agents"][0]["id"]
    await server.get(f"/api/people/{agent_id}", 404)


async def test_facts_are_listed_filtered_corrected_and_deleted(server: RunningServer) -> None:
    eve = await person_named(server, "eve")
    path = f"/api/people/{eve['id']}/facts"
    await add_facts(server, eve, "Runs the mending circle.", "Has a key to the workshop.")
    await add_facts(server, eve, "Plays the flute.", scope=MemoryScope.SHARED)
    facts = (await server.get(path))["facts"]
    assert [fact["text"] for fact in facts] == [
        "Plays the flute.",
        "Has a key to the workshop.",
        "Runs the mending circle.",
    ]
    assert (facts[0]["audience"], facts[1]["audience"], facts[1]["room"]) == ("everyone", "room", "den of eve")
    assert facts[0]["author"] == {"id": eve["id"], "name": "eve"}
    assert (await person_named(server, "eve"))["facts"] == 3
    first = await server.get(f"{path}?limit=2")
    assert [fact["text"] for fact in first["facts"]] == [fact["text"] for fact in facts[:2]]
    rest = await server.get(f"{path}?limit=2&before={first['next']}")
    assert (rest["facts"], rest["next"]) == (facts[2:], None)
    assert [fact["text"] for fact in (await server.get(f"{path}?q=KEY"))["facts"]] == ["Has a key to the workshop."]
    assert len((await server.get(f"{path}?audience=everyone"))["facts"]) == 1
    await server.get(f"{path}?before=x", 422)

    fact_path = f"/api/facts/{facts[1]['id']}"
    corrected = await change(server, "PATCH", fact_path, json={"text": " Has two keys. "})
    assert corrected == {**facts[1], "text": "Has two keys."}
    assert [memory["text"] for memory in (await server.get("/api/memories?query=two+keys"))["memories"]] == [
        "Has two keys."
    ]
    for body in ({"text": "  "}, {"text": "x" * 1001}, {}):
        await change(server, "PATCH", fact_path, 422, json=body)
    assert (await change(server, "DELETE", fact_path))["deleted"] == facts[1]["id"]
    await change(server, "DELETE", fact_path, 404)
    logged = await server.runtime.agents[0].agent.store.logs.logs(kind="authority")
    assert [entry["body"]["action"] for entry in logged] == ["DELETE_FACT", "CORRECT_FACT"]
    assert "keys" not in str(logged)


async def test_a_message_is_no_fact(server: RunningServer) -> None:
    outcome = await server.send("hello again", user="eve")
    await change(server, "DELETE", f"/api/facts/{outcome['message_id']}", 404)
    await change(server, "PATCH", f"/api/facts/{outcome['message_id']}", 404, json={"text": "changed"})


async def test_a_forgotten_person_leaves_nothing_but_counts(server: RunningServer) -> None:
    eve = await person_named(server, "eve")
    await add_facts(server, eve, "Runs the mending circle.")
    forgotten = await change(server, "POST", f"/api/people/{eve['id']}/forget")
    assert (forgotten["messages"], forgotten["derived"]) == (2, 1)
    assert {person["name"] for person in (await server.get("/api/people"))["people"]} == {"finn", "gina"}
    assert (await server.get(f"/api/people/{eve['id']}/facts"))["facts"] == []
    assert (await server.get("/api/memories?query=mending"))["memories"] == []


async def test_an_export_has_all_that_is_stored_about_a_person_and_nothing_of_others(server: RunningServer) -> None:
    eve = await person_named(server, "eve")
    await add_facts(server, eve, "Runs the mending circle.")
    answer = await request(server, "GET", f"/api/people/{eve['id']}/export")
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''eve.jsonl"
    lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert [line["type"] for line in lines] == ["person", "fact", "message", "message"]
    assert [line["text"] for line in lines[1:]] == ["Runs the mending circle.", "silence", "hello from eve"]
    assert "finn" not in str(lines)


async def test_a_question_finds_facts_and_passages_that_may_be_shown_in_a_room(open_server: ServerFactory) -> None:
    async with open_server(knowledge) as server:
        outcome = await server.send("hello from eve", user="eve", room="den of eve")
        other = await server.send("hello from finn", user="finn", room="hall")
        await add_facts(server, await person_named(server, "eve"), "Runs the mending circle.")
        text = "The mending circle meets on Thursdays.\n\n" + "Whoever leaves last puts the irons out. " * 60
        await server.post("/plugins/knowledge/documents", {"name": "rules.md", "text": text}, 201)
        path = "/api/memory/search"
        found = (await server.get(f"{path}?room={outcome['room_id']}&q=mending+circle"))["found"]
        assert {item["source"] for item in found if item["kind"] == "document"} == {"rules.md"}
        assert [item["text"] for item in found if item["kind"] == "fact"] == ["Runs the mending circle."]
        assert {item["score"] for item in found} == {None}
        elsewhere = await server.get(f"{path}?room={other['room_id']}&q=mending+circle")
        assert {item["kind"] for item in elsewhere["found"]} == {"document"}
        assert elsewhere["has_documents"]
        assert (await server.get(f"{path}?room={outcome['room_id']}&q=+"))["found"] == []
        await server.get(f"{path}?room={uuid4()}&q=mending", 404)
        roomless = await server.get(f"{path}?q=mending&agent=ada")
        assert (roomless["found"], roomless["has_documents"]) == ([], True)


async def test_without_a_plugin_for_documents_facts_are_found(server: RunningServer) -> None:
    [room, *_] = (await server.get("/api/rooms"))["rooms"]
    answer = await server.get(f"/api/memory/search?room={room['id']}&q=mending")
    assert (answer["found"], answer["has_documents"]) == ([], False)
    assert not (await server.get("/api/memory/search"))["has_documents"]


async def test_a_muted_person_is_not_answered_and_the_receipt_says_so(open_server: ServerFactory) -> None:
    store = InMemoryStore()
    async with open_server(stores={"Ada": store}) as server:
        first = await server.send("Hello", room="den", user="eve")
        author = (await server.get(f"/api/receipts/{first['receipt_id']}"))["author_id"]
        assert (await server.post(f"/api/people/{author}/mute", {}))["is_muted"]
        muted = await server.send("Are you there?", room="den", user="eve")
        assert (muted["outcome"], muted["rule"]) == ("ignored", "person muted")
        receipt = await server.get(f"/api/receipts/{muted['receipt_id']}")
        assert receipt["headline"] == "Stayed silent: this person is muted"
        assert receipt["gate"][-1]["decided"]
        assert (await server.send("Hello", room="den", user="tom"))["outcome"] == "answered"
    async with open_server(stores={"Ada": store}) as server:  # also after a restart
        assert (await server.send("And now?", room="den", user="eve"))["outcome"] == "ignored"
        assert not (await server.post(f"/api/people/{author}/unmute", {}))["is_muted"]
        assert (await server.send("And now?", room="den", user="eve"))["outcome"] == "answered"


ROBIN = derived_id("web", "robin")


async def read_pages(server: RunningServer, room_id: str) -> list[Any]:
    """Return what the API shows of the room, its receipts, the person and the conversations."""
    paths = (f"/api/rooms/{room_id}/messages", "/api/receipts", "/api/rooms", f"/api/people/{ROBIN}", "/api/people")
    shown = [await server.get(path) for path in paths]
    exported = await server.request("GET", f"/api/people/{ROBIN}/export", headers=server.bearer)
    return [*shown, await exported.text()]


@pytest.mark.long
async def test_nothing_is_kept_of_what_a_person_writes_who_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    canaries = Canaries()
    async with (
        open_file(tmp_path) as store,
        run_server(settings={"BOT_DATA_DIR": str(tmp_path)}, stores={"Ada": store}) as server,
    ):
        answer = await server.send("/ignore-me", user="robin", room="quay")
        assert "Commands still work" in answer["replies"][0]["text"]
        socket = await server.open_socket(agent="ada", room="quay", user="kim")
        sent = await server.send(canaries.write(450), user="robin", room="quay", idempotency_key="k1")
        again = await server.send(canaries.write(450), user="robin", room="quay", idempotency_key="k1")
        assert (sent["outcome"], sent["replies"]) == ("ignored", [])
        assert again["message_id"] == sent["message_id"]
        shown = await socket.wait_for("message")
        [file] = await upload(server, (f"{canaries.write(1)}.txt", "text/plain", canaries.write().encode()))
        with_file = await server.send(canaries.write(), user="robin", room="quay", attachments=[{"file": file["id"]}])
        assert with_file["outcome"] == "ignored"
        await server.send(f"/ask {canaries.write()}", user="robin", room="quay")
        await server.send(f"/{canaries.write(1)}", user="robin", room="quay")
        await server.send(canaries.write(), user="robin", room="c-robin")
        await server.send("Ada, and now?", user="kim", room="quay")
        [receipt] = [item for item in await store.ledger.receipts() if str(item.memory_id) == sent["message_id"]]
        pages = await read_pages(server, str(receipt.room_id))
        texts = [caplog.text, server.script.prompts, shown, pages]
        assert await find_canaries(tmp_path, store, Entity(ROBIN, "web", "robin"), texts) == set()
        assert HIDDEN_TEXT in str(pages)
        assert HIDDEN_TEXT in str(shown)
        assert [path for path in (tmp_path / "uploads").rglob("*") if path.is_file()] == []
    assert canaries.count >= 1_000


async def test_an_operator_ignores_a_person_over_http(web_server: RunningServer) -> None:
    await web_server.send("hello", user="robin", room="quay")
    path = f"/api/people/{ROBIN}"
    assert (await web_server.post(f"{path}/ignore", {}))["ignored_by"] == ["operator"]
    assert (await web_server.get(path))["ignored_by"] == ["operator"]
    assert (await web_server.send("my secret", user="robin", room="quay"))["outcome"] == "ignored"
    assert (await web_server.post(f"{path}/read", {}))["ignored_by"] == []
    assert (await web_server.send("hello", user="robin", room="quay"))["outcome"] == "answered"


TELLING = "I keep seventeen penguins."
FACT = "keeps seventeen penguins."
LINE = re.compile(rf"^(\d+)\. \S+ (.+) \(id \w+\): {re.escape(TELLING)}", re.MULTILINE)


@model(ModelType.TEXT_SMALL)
async def note(agent: Any, request: TextRequest) -> TextResult:
    """Note the fact where it is stated."""
    match = LINE.search(request.prompt) if request.purpose is Purpose.REFLECTION else None
    noted = f"<fact><message>{match[1]}</message><text>{match[2]} {FACT}</text></fact>" if match else ""
    return TextResult(f"<response><facts>{noted}</facts></response>")


class Prompts:
    """The server, and what its model was asked last."""

    def __init__(self, server: RunningServer, tokens: AccessTokens) -> None:
        self.server, self._tokens = server, tokens
        self.last = ""
        self._ended = asyncio.Semaphore(0)
        server.runtime.handles[0].subscribe(RunEnded, lambda event: self._ended.release())
        answer = server.script.answer

        async def listen(request: TextRequest) -> TextResult:
            self.last = request.prompt
            return await answer(request)

        server.script.answer = listen  # type: ignore[method-assign]  # the test's own model

    def headers(self, scope: TokenScope | None) -> dict[str, str]:
        """Return the header of a new token of this scope, or of the server's own."""
        if scope is None:
            return self.server.bearer
        _, text = self._tokens.create("", scope, system_clock())
        return {"Authorization": f"Bearer {text}"}

    async def send(self, text: str, headers: dict[str, str], room: str, user: str = "ann") -> str:
        """Send a message and return the prompt for its reply."""
        body = {"text": text, "room": room, "user": user}
        answer = await self.server.request("POST", "/api/agents/ada/messages", headers=headers, json=body)
        assert answer.status == 200
        await self._ended.acquire()  # what it stated is noted
        return self.last


@asynccontextmanager
async def run_prompts(folder: Path, **settings: str) -> AsyncIterator[Prompts]:
    tokens = AccessTokens(folder)
    notes = Plugin("notes", models=[note])
    async with run_server(notes, access_tokens=tokens, settings={"CONVERSATION_LENGTH": "4", **settings}) as server:
        yield Prompts(server, tokens)


@pytest.mark.long
@pytest.mark.parametrize("scope", [None, TokenScope.OPERATOR, TokenScope.CHAT])
async def test_a_new_conversation_knows_what_was_written_in_the_last_conversation(
    scope: TokenScope | None, tmp_path: Path
) -> None:
    async with run_prompts(tmp_path) as prompts:
        headers = prompts.headers(scope)
        await prompts.send(TELLING, headers, "c-first")
        assert FACT in await prompts.send("How many penguins?", headers, "c-second")


async def test_another_user_and_another_token_receive_nothing_of_it(tmp_path: Path) -> None:
    async with run_prompts(tmp_path) as prompts:
        own, operator, chat = (prompts.headers(scope) for scope in (None, TokenScope.OPERATOR, TokenScope.CHAT))
        for number, headers in enumerate((own, chat)):
            await prompts.send(TELLING, headers, f"c-first-{number}")
        assert FACT not in await prompts.send("How many penguins?", own, "c-second", user="ben")
        for number, headers in enumerate((operator, prompts.headers(TokenScope.CHAT))):
            assert FACT not in await prompts.send("How many penguins?", headers, f"c-third-{number}")
        assert FACT in await prompts.send("How many penguins?", own, "c-fourth")


async def test_a_setting_keeps_each_conversation_for_itself(tmp_path: Path) -> None:
    async with run_prompts(tmp_path, PRIVATE_FACTS="room") as prompts:
        headers = prompts.headers(None)
        await prompts.send(TELLING, headers, "c-first")
        assert FACT not in await prompts.send("How many penguins?", headers, "c-second")
        assert FACT in await prompts.send("How many penguins?", headers, "c-first")


async def test_conversations_of_the_page_and_the_api_with_the_same_token_belong_to_the_same_person(
    tmp_path: Path,
) -> None:
    async with run_prompts(tmp_path) as prompts:
        await prompts.send(TELLING, prompts.headers(None), "c-first")
        page = await prompts.server.open_socket(room="c-second", user="ann")
        await page.send_message("How many penguins?", "question")
        await page.ws.close()
        assert FACT in prompts.last


DISTRESS = "I want to die"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


async def test_a_referral_is_the_first_reply_and_has_its_kind(web_server: Any) -> None:
    outcome = await web_server.send(DISTRESS)
    referral, answer = outcome["replies"]
    assert (referral["kind"], answer["kind"]) == ("referral", "reply")
    assert "https://findahelpline.com" in referral["text"]
    assert referral["in_reply_to"] == outcome["message_id"]
    assert [reply["kind"] for reply in (await web_server.send(DISTRESS))["replies"]] == ["reply"]


async def test_a_message_that_is_not_answered_has_its_referral_all_the_same(web_server: Any) -> None:
    outcome = await web_server.send(f"silence please. {DISTRESS}", user="Eve")
    assert (outcome["outcome"], [reply["kind"] for reply in outcome["replies"]]) == ("ignored", ["referral"])


async def test_the_page_shows_a_referral_again_when_it_is_opened_later(web_server: Any) -> None:
    await web_server.send(DISTRESS, room="den")
    [room] = [item for item in (await web_server.get("/api/rooms"))["rooms"] if item["name"] == "den"]
    messages = (await web_server.get(f"/api/rooms/{room['id']}/messages"))["messages"]
    assert [item["kind"] for item in messages] == ["reply", "referral", "reply"]


async def test_the_report_counts_referrals_by_day_and_category(web_server: Any) -> None:
    await web_server.send(DISTRESS, user="Eve")
    await web_server.send(DISTRESS, user="Kim")
    await web_server.send("I cut myself again", user="Ann")
    today = system_clock().date()
    report = await web_server.get("/api/care")
    assert (report["total"], report["categories"]) == (
        3,
        {"emergency": 0, "suicide": 2, "self_harm": 1, "eating_disorder": 0},
    )
    assert {(item["day"], item["category"], item["count"]) for item in report["days"]} == {
        (str(today), "suicide", 2),
        (str(today), "self_harm", 1),
    }
    assert (report["since"], report["until"]) == (str(today - timedelta(days=30)), str(today))
    tomorrow = await web_server.get(f"/api/care?since={today + timedelta(days=1)}&agent=ada")
    assert (tomorrow["total"], tomorrow["days"]) == (0, [])
    assert "Eve" not in str(report)
    await web_server.get("/api/care?since=yesterday", 422)


async def test_a_stream_of_events_brings_the_referral_before_the_answer(web_server: Any) -> None:
    body = {"text": DISTRESS, "stream": True}
    answer = await web_server.request("POST", "/api/agents/ada/messages", json=body, headers=HEADERS)
    text = await answer.text()
    assert text.index("findahelpline") < text.index("You said")


@pytest.mark.parametrize("is_on", [True, False])
async def test_the_referrals_of_today_are_a_metric(web_server: Any, is_on: bool) -> None:
    if is_on:
        await web_server.send(DISTRESS)
    text = await (await web_server.request("GET", "/metrics", headers=HEADERS)).text()
    assert ('greenroom_referrals_today{agent="Ada",category="suicide"} 1.0' in text) is is_on
    assert DISTRESS not in text


async def test_duties_show_notices_referrals_marked_people_and_settings(web_server: Any) -> None:
    await web_server.send(DISTRESS, user="Eve")
    await web_server.send("hello", user="Kim")
    people = {person["name"]: person["id"] for person in (await web_server.get("/api/people"))["people"]}
    await web_server.post(f"/api/people/{people['Kim']}/mark-minor", None)
    await web_server.post(f"/api/people/{people['Eve']}/ignore", None)
    duties = await web_server.get("/api/duties?agent=ada")
    assert (duties["notified_people"], duties["care"]["total"]) == (0, 1)
    assert {(item["person"], item["mark"], item["origin"]) for item in duties["marks"]} == {
        (people["Kim"], "minor", "operator"),
        (people["Eve"], "not_read", "operator"),
    }
    assert list(duties["content"].values()) == ["general"]
    values = {setting["name"]: setting["value"] for setting in duties["settings"]}
    assert (values["AI_NOTICE"], values["CARE_COUNTRY"]) == ("off", None)
