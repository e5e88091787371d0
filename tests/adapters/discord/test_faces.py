"""Several characters on one account of the emulated Discord, each with a webhook's name and picture."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from adapters.discord.adapter import DiscordAdapter, open_discord
from adapters.discord.emulator.server import Fault
from adapters.discord.emulator.state import THREAD
from bot import Attachment, Character, ConfigError, Content, MediaKind, Outcome, Plugin
from bot.models import Purpose, TextRequest
from bot.platform import DeliveryState
from bot.store import InMemoryStore, Store
from bot.testing import AgentHarness, ScriptedModel, model_answer, running_agent
from bot.testing.emulator import ShownMessage
from tests.adapters.discord.server import LIMITS, TOKEN, EmulatedServer

UNSENT = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
NAMES = ("Ada", "Bruno", "Clara")
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55")


@dataclass
class Faces:
    """Characters of one account, by name."""

    server: EmulatedServer
    harnesses: dict[str, AgentHarness] = field(default_factory=dict)
    adapter: DiscordAdapter | None = None
    members: Sequence[str] = NAMES[:1]  # who receives what is said

    @property
    def shown(self) -> list[ShownMessage]:
        """What was shown, oldest first."""
        return self.server.emulator.recorder.messages

    async def run(self, name: str, user: str = "", channel: str = "", /, **options: str) -> str:
        """Run a command, by default as the owner in the lobby, and return the text that its sender sees."""
        server, recorder = self.server, self.server.emulator.recorder
        interaction = await server.emulator.interactions.run_command(
            server.bot, user or server.kim, channel or server.lobby, name, **options
        )
        await recorder.wait_until(lambda: any(item.get("content") for item in recorder.responses[interaction]))
        return str(recorder.responses[interaction][0]["content"])

    async def say(self, text: str, channel: str = "", *, reply_to: str | None = None) -> list[tuple[str, str]]:
        """Say something; return the names and texts of what was shown then, once all have processed it."""
        before, channel = len(self.shown), channel or self.server.lobby
        message_id = await self.server.emulator.people.say(channel, self.server.robin, text, reply_to=reply_to)
        await self.settle(message_id)
        return [(str(shown.author), shown.texts[-1]) for shown in self.shown[before:]]

    async def settle(self, message_id: str) -> dict[str, Outcome]:
        """Wait until a message is processed by all who receive it; return the outcomes by name."""
        for _ in range(2000):
            await asyncio.sleep(0.002)
            ledgers = {name: harness.agent.store.ledger for name, harness in self.harnesses.items()}
            found = {name: await ledger.receipts_by_message_id(message_id) for name, ledger in ledgers.items()}
            outcomes = {name: receipts[0].outcome for name, receipts in found.items() if receipts}
            deliveries = [item for ledger in ledgers.values() for item in await ledger.deliveries()]
            is_processed = {*self.members} <= outcomes.keys() and all(item.is_final for item in outcomes.values())
            if is_processed and all(item.state not in UNSENT for item in deliveries):
                return outcomes
        raise AssertionError(f"not all of {self.members} have processed it")


def answering(name: str) -> ScriptedModel:
    """A model that answers what is for it, in its name, and stays silent otherwise."""

    def write(request: TextRequest) -> str:
        if request.purpose is Purpose.SHOULD_RESPOND:
            return "<response><action>IGNORE</action><reasoning>not for me</reasoning></response>"
        return "" if request.purpose is Purpose.REFLECTION else model_answer(f"{name} here.")

    return ScriptedModel(write)


@asynccontextmanager
async def faces_of(
    server: EmulatedServer,
    names: Sequence[str] = NAMES,
    *plugins: Plugin,
    cast: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    pictures: Mapping[str, str] | None = None,
    stores: dict[str, Store] | None = None,
    models: Mapping[str, ScriptedModel] | None = None,
) -> AsyncIterator[Faces]:
    """Run characters on one account; `cast` are those that an admin adds in the lobby beside the first."""
    faces, pictures = Faces(server), pictures or {}
    given = {"DISCORD_API_TOKEN": TOKEN, "DISCORD_API_BASE_URL": server.emulator.url, "DISCORD_FACES": "webhook"}
    given |= {"STREAMING": "false", **(settings or {})}
    async with AsyncExitStack() as stack:
        for name in names:
            store = (stores or {}).get(name) or InMemoryStore()
            faces.harnesses[name] = await stack.enter_async_context(
                running_agent(
                    *plugins,
                    model=(models or {}).get(name) or answering(name),
                    settings=given,
                    store=store,
                    character=Character(name=name, picture=pictures.get(name, "")),
                )
            )
        handles = [harness.agent_runtime.handle for harness in faces.harnesses.values()]
        faces.adapter = await stack.enter_async_context(DiscordAdapter(handles, limits=LIMITS))
        for harness in faces.harnesses.values():
            harness.agent.outbox.connect(faces.adapter)
        async with asyncio.timeout(30):
            await next(iter(faces.adapter.accounts)).is_connected.wait()
        for name in cast:
            await faces.run("cast", action="add", name=name)
        faces.members = [names[0], *cast]
        yield faces
        for harness in faces.harnesses.values():
            harness.agent_runtime.inbox.close()
            await harness.agent_runtime.inbox.drain(10)
            await harness.agent.outbox.drain(10)


@pytest.mark.long
async def test_a_message_is_answered_by_the_character_that_it_names_through_a_webhook(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:], pictures={"Bruno": "https://pictures.example/bruno.png"}) as faces:
        assert [name for name, _ in await faces.say("Bruno, where is the parcel?")] == ["Bruno"]
        assert [name for name, _ in await faces.say("Clara, and you?")] == ["Clara"]
        assert [name for name, _ in await faces.say("Ada, hello")] == ["Ada"]
        assert len(server.emulator.gateway.sessions) == 1
    [webhook] = server.emulator.state.webhooks.values()
    bodies = [shown.message for shown in faces.shown]
    assert bodies[0]["avatar_url"] == "https://pictures.example/bruno.png"
    assert webhook["application_id"] == server.bot
    assert [shown.texts[0].splitlines()[-1] for shown in faces.shown] == ["Bruno here.", "Clara here.", "Ada here."]


async def test_without_a_cast_the_first_character_answers_as_the_account(server: EmulatedServer) -> None:
    async with faces_of(server) as faces:
        assert await faces.say(f"{server.call} hello") == [(server.bot, "Ada here.")]
        assert await faces.say("Bruno, hello") == []
        assert await faces.harnesses["Bruno"].agent.store.ledger.receipts() == []
    assert server.emulator.state.webhooks == {}


@pytest.mark.long
async def test_a_reply_is_answered_by_its_addressee_and_a_mention_of_the_account_by_the_first(
    server: EmulatedServer,
) -> None:
    async with faces_of(server, cast=NAMES[1:]) as faces:
        await faces.say("Clara, hello")
        reply_to = faces.shown[-1].id
        assert [name for name, _ in await faces.say("and you?", reply_to=reply_to)] == ["Clara"]
        assert [name for name, _ in await faces.say(f"{server.call} hello")] == ["Ada"]
        assert [name for name, _ in await faces.say(f"{server.call} Bruno, hello")] == ["Bruno"]


async def test_another_character_stores_a_message_and_leaves_it_unanswered(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        await faces.say("Bruno, hello")
        faces.members = ["Ada"]
        await faces.settle(faces.shown[-1].id)
        store = faces.harnesses["Ada"].agent.store
        [receipt] = await store.ledger.receipts_by_message_id(faces.shown[-1].id)
        messages = await store.memories.recent(receipt.room_id, 1)
        author = (await store.entities.entities([receipt.author_id]))[receipt.author_id]
    assert receipt.rule == "cast (another of its characters wrote it)"
    assert [message.content.text for message in messages] == ["Bruno here."]
    assert (author.name, author.is_bot) == ("Bruno", True)


async def test_a_question_to_all_is_left_to_the_characters_decision(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:]) as faces:
        message_id = await server.emulator.people.say(server.lobby, server.robin, "who knows where the parcel is?")
        outcomes = await faces.settle(message_id)
        receipts = await faces.harnesses["Clara"].agent.store.ledger.receipts_by_message_id(message_id)
    assert set(outcomes) == set(NAMES)
    assert not str(receipts[0].rule).startswith("cast")


async def test_a_reply_is_shown_by_a_quoted_line_with_a_link(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        message_id = await server.emulator.people.say(server.lobby, server.robin, "Bruno, *what* @everyone")
        await faces.settle(message_id)
    [shown] = faces.shown
    link = f"https://discord.com/channels/{server.guild}/{server.lobby}/{message_id}"
    assert re.fullmatch(rf"> \[Rob\]\(<{link}>\): Bruno, .+\nBruno here\.", shown.texts[0])
    assert "message_reference" not in shown.message
    assert shown.notified == set()


async def test_talk_addresses_a_member_and_refuses_who_is_not_there(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        assert "> hello" in await faces.run("talk", server.robin, name="bruno", text="hello")
        await server.emulator.recorder.wait_for_texts(1, server.lobby)
        assert "Clara does not speak here" in await faces.run("talk", server.robin, name="Clara", text="hello")
        assert "There is no character Zoe" in await faces.run("talk", server.robin, name="Zoe")
    assert [shown.author for shown in faces.shown] == ["Bruno"]


async def test_in_a_private_chat_talk_chooses_who_answers(server: EmulatedServer) -> None:
    direct = server.direct(server.robin)
    async with faces_of(server) as faces:
        assert await faces.say("hello", direct) == [(server.bot, "Ada here.")]
        faces.members = ["Bruno"]
        assert "Bruno answers here" in await faces.run("talk", server.robin, direct, name="Bruno")
        assert await faces.say("hello", direct) == [(server.bot, "**Bruno:** Bruno here.")]


async def test_only_an_admin_changes_the_cast_and_it_is_listed_and_kept(server: EmulatedServer) -> None:
    stores: dict[str, Store] = {name: InMemoryStore() for name in NAMES}
    async with faces_of(server, stores=stores) as faces:
        assert "Bruno" not in (await faces.run("cast", action="list")).partition("Others")[0]
        assert "admin" in (await faces.run("cast", server.robin, action="add", name="Bruno")).lower()
        assert await faces.run("cast", action="add", name="Bruno") == "Here speak: Ada, Bruno."
        assert await faces.run("cast", action="remove", name="Ada") == "Here speak: Bruno."
    async with faces_of(server, stores=stores) as faces:
        faces.members = ["Bruno"]
        assert [name for name, _ in await faces.say("Bruno, hello")] == ["Bruno"]
        assert await faces.say("Ada, hello") == []


async def test_changes_of_the_cast_at_the_same_time_are_all_kept(server: EmulatedServer) -> None:
    async with faces_of(server) as faces:
        await asyncio.gather(*(faces.run("cast", action="add", name=name) for name in NAMES[1:]))
        listed = await faces.run("cast", action="list")
    assert all(name in listed.partition("Others")[0] for name in NAMES)


async def test_a_thread_has_the_cast_and_the_webhook_of_its_channel(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        thread = await server.emulator.people.open_channel(server.guild, "repairs", THREAD, server.lobby)
        [(name, _)] = await faces.say("Bruno, hello", thread)
    assert name == "Bruno"
    assert faces.shown[-1].room == thread


async def test_a_character_answers_in_the_thread_that_it_opens_and_is_in_its_cast(server: EmulatedServer) -> None:
    opening = model_answer("Here.", actions=["REPLY", "OPEN_THREAD"], parameters={"OPEN_THREAD": {"name": "Tides"}})
    model = ScriptedModel([opening, model_answer("High water at four.")])
    async with faces_of(server, cast=NAMES[1:2], models={"Bruno": model}) as faces:
        message_id = await server.emulator.people.say(server.lobby, server.kim, "Bruno, a thread about tides, please")
        await faces.settle(message_id)
        assert [(shown.room, shown.author) for shown in faces.shown] == [(message_id, "Bruno")]
        assert faces.shown[0].texts[-1].endswith("Here.")
        [(author, text)] = await faces.say("Bruno, and today?", message_id)
        assert (author, text.endswith("High water at four.")) == ("Bruno", True)


async def test_help_lists_the_commands_of_the_account(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        listed = await faces.run("help")
    assert "/talk name [text]" in listed
    assert "/cast [action] [name]" in listed


async def test_without_the_permission_the_account_writes_with_the_name_in_bold(server: EmulatedServer) -> None:
    server.emulator.rest.denied[server.lobby].add("MANAGE_WEBHOOKS")
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        assert await faces.say("Bruno, hello") == [(server.bot, "**Bruno:** Bruno here.")]
        reply_to = faces.shown[-1].id
        assert await faces.say("really?", reply_to=reply_to) == [(server.bot, "**Bruno:** Bruno here.")]
        [receipt] = await faces.harnesses["Ada"].agent.store.ledger.receipts_by_message_id(reply_to)
        heard = await faces.harnesses["Ada"].agent.store.memories.recent(receipt.room_id, 9)
    assert {memory.content.text for memory in heard} == {"Bruno, hello", "Bruno here.", "really?"}


async def test_a_deleted_webhook_is_created_again(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        await faces.say("Bruno, hello")
        server.emulator.state.webhooks.clear()
        assert [name for name, _ in await faces.say("Bruno, again")] == ["Bruno"]


async def test_a_picture_in_a_file_is_that_of_a_webhook_of_its_own(server: EmulatedServer) -> None:
    picture = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    async with faces_of(server, cast=NAMES[1:], pictures={"Bruno": picture}) as faces:
        await faces.say("Bruno, hello")
        await faces.say("Clara, hello")
    webhooks = {item["name"]: item["avatar"] for item in server.emulator.state.webhooks.values()}
    assert webhooks.keys() == {"Bruno", "Greenroom"}
    assert webhooks["Greenroom"] is None
    assert webhooks["Bruno"]


@pytest.mark.long
async def test_an_unclear_message_that_arrived_is_found_in_the_channel_and_not_sent_again(
    server: EmulatedServer,
) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        await faces.say("Bruno, hello")  # the same text as the unclear one
        server.emulator.faults.append(Fault("POST .*/webhooks/.*webhook-", is_late=True))
        await server.emulator.people.say(server.lobby, server.robin, "Bruno, again")
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["fault"] == 1)
        await wait_for_state(faces.harnesses["Bruno"], DeliveryState.SENT, 2)
        deliveries = await faces.harnesses["Bruno"].agent.store.ledger.deliveries()
    assert [shown.author for shown in faces.shown] == ["Bruno", "Bruno"]
    assert {item.external_id for item in deliveries} == {shown.id for shown in faces.shown}


@pytest.mark.long
async def test_an_unclear_message_that_did_not_arrive_is_sent_again(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        await faces.say("Bruno, hello")
        server.emulator.faults.append(Fault("POST .*/webhooks/.*webhook-"))
        await server.emulator.people.say(server.lobby, server.robin, "Bruno, again")
        await wait_for_state(faces.harnesses["Bruno"], DeliveryState.SENT, 2)
    assert [shown.author for shown in faces.shown] == ["Bruno", "Bruno"]


@pytest.mark.long
async def test_an_unclear_message_in_a_channel_that_cannot_be_read_is_held(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        server.emulator.rest.denied[server.lobby].add("READ_MESSAGE_HISTORY")
        server.emulator.faults.append(Fault("POST .*/webhooks/.*webhook-", is_late=True))
        await server.emulator.people.say(server.lobby, server.robin, "Bruno, hello")
        await wait_for_state(faces.harnesses["Bruno"], DeliveryState.UNKNOWN, 1)
    assert [shown.author for shown in faces.shown] == ["Bruno"]


async def wait_for_state(harness: AgentHarness, state: DeliveryState, count: int) -> None:
    """Wait until a character has so many deliveries in a state."""
    async with asyncio.timeout(30):
        while True:
            deliveries = await harness.agent.store.ledger.deliveries()
            if [item.state for item in deliveries].count(state) == count:
                return
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("immediate_edits")
async def test_an_answer_of_a_webhook_can_be_edited_and_deleted(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2], settings={"ON_EDIT": "rerun"}) as faces:
        message_id = await server.emulator.people.say(server.lobby, server.robin, "Bruno, hello")
        await faces.settle(message_id)
        await server.emulator.people.edit(server.lobby, message_id, "Bruno, hello there")
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["edited"] == 1)
        await faces.settle(message_id)
        assert faces.adapter is not None
        [*_, delivery] = await faces.harnesses["Bruno"].agent.store.ledger.deliveries()
        deletion = replace(delivery, content=Content(), replaces_external_id=faces.shown[0].id)
        assert await faces.adapter.edit(deletion) == faces.shown[0].id == await faces.adapter.edit(deletion)
    [shown] = faces.shown
    assert [text.splitlines()[-1] for text in shown.texts] == ["Bruno here.", "Bruno here."]
    assert shown.is_gone


async def test_a_file_is_sent_by_the_webhook(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        await faces.say("Bruno, hello")
        assert faces.adapter is not None
        [delivery] = await faces.harnesses["Bruno"].agent.store.ledger.deliveries()
        file = Attachment("map", MediaKind.DOCUMENT, data=b"a map", name="map.txt", content_type="text/plain")
        await faces.adapter.deliver(replace(delivery, id="another", content=Content("Look", attachments=(file,))))
    assert (faces.shown[-1].author, faces.shown[-1].files) == ("Bruno", {"map.txt": b"a map"})


async def test_a_decision_about_the_account_holds_for_all_its_characters(server: EmulatedServer) -> None:
    async with faces_of(server, cast=NAMES[1:2]) as faces:
        await faces.run("ignore-me", server.robin)
        assert await faces.say("Bruno, hello") == []
        assert await faces.say("Ada, hello") == []


async def test_two_characters_share_a_token_only_where_it_is_set(server: EmulatedServer) -> None:
    async with AsyncExitStack() as stack:
        handles = []
        for name in NAMES[:2]:
            settings = {"DISCORD_API_TOKEN": TOKEN, "DISCORD_API_BASE_URL": server.emulator.url}
            running = running_agent(model=answering(name), settings=settings, character=Character(name=name))
            handles.append((await stack.enter_async_context(running)).agent_runtime.handle)
        with pytest.raises(ConfigError, match="DISCORD_API_TOKEN"):
            open_discord(handles)
