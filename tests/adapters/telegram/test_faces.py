"""Several characters on one bot of the emulated Telegram, each under its name in bold."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from adapters.telegram import adapter
from adapters.telegram.adapter import TelegramAdapter, open_telegram
from adapters.telegram.config import read_settings
from adapters.telegram.emulator import Emulator
from adapters.telegram.outgoing import DUPLICATE_NOTICE
from bot import AgentConfig, Character, Choice, ConfigError, Content, Outcome, Runtime, Settings
from bot.models import Purpose, TextRequest
from bot.platform import DeliveryState
from bot.settings import CHARACTER_FILE, Layer
from bot.store import InMemoryStore, Store
from bot.testing import AgentHarness, ScriptedModel, StreamedText, model_answer, running_agent
from bot.testing.emulator import ShownMessage
from plugins.bootstrap import plugin as bootstrap
from tests.adapters.telegram.conftest import TOKEN, SkippingClock

UNSENT = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
NAMES = ("Ada", "Bruno", "Clara")


@dataclass
class Faces:
    """Characters of one bot, by name, in a forum with an owner and a member."""

    telegram: Emulator
    kim: Mapping[str, Any]
    robin: Mapping[str, Any]
    forum: Mapping[str, Any]
    harnesses: dict[str, AgentHarness] = field(default_factory=dict)
    adapter: TelegramAdapter | None = None
    members: Sequence[str] = NAMES[:1]  # who receives what is said

    @property
    def shown(self) -> list[ShownMessage]:
        """What was shown, oldest first."""
        return self.telegram.recorder.messages

    async def say(self, text: str, chat: Mapping[str, Any] | None = None, **fields: Any) -> list[str]:
        """Say something as a member; return the texts that were shown then, once all have processed it."""
        before = len(self.shown)
        message = self.telegram.people.say(chat or self.forum, self.robin, text, **fields)
        await self.settle(str(message["message_id"]))
        return [shown.text for shown in self.shown[before:]]

    async def run(self, text: str, user: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """Send a command, by default as the owner, and return the text of the response."""
        before = len(self.shown)
        self.telegram.people.say(fields.pop("chat", self.forum), user or self.kim, text, **fields)
        await self.telegram.recorder.wait_until(lambda: len(self.shown) > before)
        return self.shown[before].text

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

    async def texts_of(self, name: str, message_id: str) -> list[str]:
        """Return the texts that a character knows in the room of a message, oldest first."""
        store = self.harnesses[name].agent.store
        [receipt, *_] = await store.ledger.receipts_by_message_id(message_id)
        return [memory.content.text for memory in await store.memories.recent(receipt.room_id, 20)]


def answering(name: str, answer: str | StreamedText = "") -> ScriptedModel:
    """A model that answers what is for it, in its name unless `answer` is given, and stays silent otherwise."""

    def write(request: TextRequest) -> str | StreamedText:
        if request.purpose is Purpose.SHOULD_RESPOND:
            return "<response><action>IGNORE</action><reasoning>not for me</reasoning></response>"
        return "" if request.purpose is Purpose.REFLECTION else answer or model_answer(f"{name} here.")

    return ScriptedModel(write)


@asynccontextmanager
async def faces_of(
    *cast: str,
    settings: Mapping[str, str] | None = None,
    stores: Mapping[str, Store] | None = None,
    telegram: Emulator | None = None,
    answers: Mapping[str, StreamedText] | None = None,
) -> AsyncIterator[Faces]:
    """Run three characters on one bot; `cast` are those that the owner adds in the forum beside the first."""
    async with AsyncExitStack() as stack:
        telegram = telegram or await stack.enter_async_context(Emulator())
        bot = telegram.state.bots.get(TOKEN) or telegram.add_bot(TOKEN)
        kim, robin = telegram.people.add_user("Kim"), telegram.people.add_user("Robin")
        forum = telegram.people.add_group("Quay", robin, owner=kim, is_forum=True)
        faces = Faces(telegram, kim, robin, forum)
        given = {**telegram.settings(bot), "TELEGRAM_FACES": "name", "STREAMING": "false", **(settings or {})}
        for name in NAMES:
            faces.harnesses[name] = await stack.enter_async_context(
                running_agent(
                    model=answering(name, (answers or {}).get(name, "")),
                    settings=given,
                    store=(stores or {}).get(name) or InMemoryStore(),
                    character=Character(name=name),
                )
            )
        handles = [harness.agent_runtime.handle for harness in faces.harnesses.values()]
        open_telegram(handles)
        faces.adapter = await stack.enter_async_context(
            TelegramAdapter(handles, time_source=SkippingClock().time_source)
        )
        for harness in faces.harnesses.values():
            harness.agent.outbox.connect(faces.adapter)
        for name in cast:
            await faces.run(f"/cast add {name}")
        faces.members = [NAMES[0], *cast]
        yield faces
        for harness in faces.harnesses.values():
            harness.agent_runtime.inbox.close()
            await harness.agent_runtime.inbox.drain(10)
            await harness.agent.outbox.drain(10)


@pytest.mark.long
async def test_who_is_named_answers_under_its_name_in_bold() -> None:
    async with faces_of(*NAMES[1:]) as faces:
        assert await faces.say("Bruno, where is the parcel?") == ["Bruno: Bruno here."]
        assert await faces.say("Clara, and you?") == ["Clara: Clara here."]
        assert await faces.say("@ada_bot hello") == ["Ada: Ada here."]
        assert await faces.say("@ada_bot Bruno, hello") == ["Bruno: Bruno here."]
        entities = [shown.message["entities"] for shown in faces.shown[2:]]
    assert entities[0] == [{"type": "bold", "offset": 0, "length": len("Bruno:")}]


async def test_without_a_cast_the_first_answers_and_no_name_is_shown() -> None:
    async with faces_of() as faces:
        assert await faces.say("@ada_bot hello") == ["Ada here."]
        faces.members = []
        assert await faces.say("Bruno, hello") == []
        assert await faces.harnesses["Bruno"].agent.store.ledger.receipts() == []


async def test_a_topic_with_a_single_character_shows_no_name() -> None:
    async with faces_of("Bruno") as faces:
        topic = faces.telegram.people.add_topic(faces.forum, faces.kim, "Clara's corner")
        assert await faces.run("/cast add Clara", thread=topic) == "Here speak: Ada, Bruno, Clara."
        assert await faces.run("/cast remove Ada", thread=topic) == "Here speak: Bruno, Clara."
        assert await faces.run("/cast remove Bruno", thread=topic) == "Here speak: Clara."
        faces.members = ["Clara"]
        assert await faces.say("@ada_bot hello", thread=topic) == ["Clara here."]
        assert faces.shown[-1].thread == topic
        faces.members = ["Ada", "Bruno"]
        assert await faces.say("Bruno, hello") == ["Bruno: Bruno here."]
        assert "Clara" in await faces.run("/cast list", thread=topic)


async def test_a_reply_is_for_the_character_that_has_sent_the_message_whatever_its_text_says() -> None:
    async with faces_of(*NAMES[1:]) as faces:
        await faces.say("Clara, hello")
        answer = {**faces.shown[-1].message, "text": "Bruno: Bruno here."}
        assert await faces.say("and you?", reply_to=answer) == ["Clara: Clara here."]


@pytest.mark.long
async def test_after_a_restart_the_ledger_tells_whom_a_reply_is_for() -> None:
    stores: dict[str, Store] = {name: InMemoryStore() for name in NAMES}
    async with Emulator() as telegram:
        async with faces_of(*NAMES[1:], stores=stores, telegram=telegram) as faces:
            await faces.say("Clara, hello")
            forum, answer = faces.forum, faces.shown[-1].message
        async with faces_of(stores=stores, telegram=telegram) as faces:
            faces.members = NAMES
            message = telegram.people.say(forum, faces.robin, "and you?", reply_to=answer)
            await faces.settle(str(message["message_id"]))
            assert faces.shown[-1].text == "Clara: Clara here."
            [receipt, *_] = await stores["Clara"].ledger.receipts_by_message_id(str(message["message_id"]))
            memories = await stores["Clara"].memories.memories([receipt.memory_id])
    quotation = memories[receipt.memory_id].content.quotation
    assert quotation is not None
    assert (quotation.text, quotation.author_name) == ("Clara here.", "Clara")


async def test_the_others_hear_what_a_character_says_and_its_edits_and_leave_it_unanswered() -> None:
    async with faces_of("Bruno", settings={"ON_EDIT": "rerun"}) as faces:
        question = faces.telegram.people.say(faces.forum, faces.robin, "Bruno, hello")
        await faces.settle(str(question["message_id"]))
        [answer] = [shown for shown in faces.shown if shown.text == "Bruno: Bruno here."]
        faces.members = ["Ada"]
        await faces.settle(str(answer.id))
        assert await faces.texts_of("Ada", str(answer.id)) == ["Bruno, hello", "Bruno here."]
        [receipt] = await faces.harnesses["Ada"].agent.store.ledger.receipts_by_message_id(str(answer.id))
        assert receipt.rule == "cast (another of its characters wrote it)"
        assert faces.adapter is not None
        [delivery] = await faces.harnesses["Bruno"].agent.store.ledger.deliveries()
        edit = replace(delivery, id="another", content=Content("On my way."), replaces_external_id=str(answer.id))
        await faces.adapter.edit(edit)
        assert answer.text == "Bruno: On my way."
        assert await faces.texts_of("Ada", str(answer.id)) == ["Bruno, hello", "On my way."]
        await faces.adapter.edit(replace(edit, content=Content()))
        assert answer.is_gone
        texts = await faces.texts_of("Ada", str(question["message_id"]))
    assert texts == ["Bruno, hello"]


@pytest.mark.usefixtures("nothing_held_back")
async def test_a_streamed_answer_begins_with_the_name_from_the_first_draft_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "GROUP_DRAFT_INTERVAL", 0.0)
    begun, ended = "It left the quay at noon, on the boat with the red sail, ", "and it will be there at three."
    text, goes_on = begun + ended, asyncio.Event()
    head, _, tail = model_answer(text).partition(ended)
    streamed = StreamedText(head, goes_on, ended + tail)
    async with faces_of("Bruno", settings={"STREAMING": "true"}, answers={"Bruno": streamed}) as faces:
        before = len(faces.shown)
        question = faces.telegram.people.say(faces.forum, faces.robin, "Bruno, where is the parcel?")
        await faces.telegram.recorder.wait_until(lambda: len(faces.shown) > before)
        goes_on.set()
        await faces.settle(str(question["message_id"]))
        shown = faces.shown[-1]
        assert len(shown.texts) > 1
        faces.members = ["Ada"]
        await faces.settle(str(shown.id))
        heard = await faces.texts_of("Ada", str(shown.id))
    assert shown.text == f"Bruno: {text}"
    assert all(draft.startswith("Bruno: ") for draft in shown.texts)
    assert heard[-1] == text


async def test_talk_addresses_a_member_and_refuses_who_is_not_there() -> None:
    async with faces_of("Bruno") as faces:
        assert await faces.run("/talk bruno hello", faces.robin) == "Bruno: Bruno here."
        assert "Clara does not speak here" in await faces.run("/talk Clara hello", faces.robin)
        assert "There is no character Zoe" in await faces.run("/talk Zoe", faces.robin)


async def test_in_a_private_chat_talk_chooses_who_answers() -> None:
    async with faces_of() as faces:
        direct = faces.telegram.people.open_private_chat(faces.robin)
        assert await faces.say("hello", direct) == ["Ada here."]
        assert "Bruno answers here" in await faces.run("/talk Bruno", faces.robin, chat=direct)
        faces.members = ["Bruno"]
        assert await faces.say("hello", direct) == ["Bruno here."]


async def test_only_an_admin_changes_the_cast_and_it_can_be_changed_without_the_first() -> None:
    async with faces_of() as faces:
        assert "admin" in (await faces.run("/cast add Bruno", faces.robin)).lower()
        assert await faces.run("/cast add Bruno") == "Here speak: Ada, Bruno."
        assert await faces.run("/cast remove Ada") == "Here speak: Bruno."
        faces.members = ["Bruno"]
        assert await faces.say("Bruno, hello") == ["Bruno here."]
        assert await faces.run("/cast add Ada") == "Here speak: Bruno, Ada."


async def test_a_decision_about_the_bot_holds_for_all_its_characters() -> None:
    async with faces_of("Bruno") as faces:
        await faces.run("/ignore_me", faces.robin)
        assert await faces.say("Bruno, hello") == []
        assert await faces.say("Ada, hello") == []


async def test_a_button_is_for_the_character_that_has_sent_it_and_a_decision_by_it_for_all() -> None:
    async with faces_of("Bruno") as faces:
        await faces.say("Bruno, hello")
        assert faces.adapter is not None
        [delivery] = await faces.harnesses["Bruno"].agent.store.ledger.deliveries()
        asked = replace(delivery, id="another", content=Content("Not read?", choices=(Choice("Yes", "/ignore-me"),)))
        await faces.adapter.deliver(asked)
        before = len(faces.shown)
        faces.telegram.people.press(faces.shown[-1].message, faces.robin, "/ignore-me")
        await faces.telegram.recorder.wait_until(lambda: len(faces.shown) > before)
        assert await faces.say("Bruno, hello") == []
        assert await faces.say("Ada, hello") == []
        assert len(faces.shown) == before + 1, "a single response"


async def test_instructions_of_a_room_hold_for_all_characters() -> None:
    async with faces_of("Bruno") as faces:
        assert "German" in await faces.run("/room set language German")
        await faces.say("Bruno, hello")
        shown = []
        for name in ("Ada", "Bruno"):
            handle = faces.harnesses[name].agent_runtime.handle
            [room] = await handle.conversations.rooms()
            body = await handle.operations.instructions(room.id, {})
            shown.append([(item.key, item.value) for item in body.values])
    assert shown == [[("language", "German")]] * 2


async def test_a_question_to_all_is_left_to_the_characters_decision() -> None:
    async with faces_of(*NAMES[1:]) as faces:
        message = faces.telegram.people.say(faces.forum, faces.robin, "who knows where the parcel is?")
        assert set(await faces.settle(str(message["message_id"]))) == set(NAMES)
        receipts = await faces.harnesses["Clara"].agent.store.ledger.receipts_by_message_id(str(message["message_id"]))
    assert not str(receipts[0].rule).startswith("cast")


async def test_a_repeated_message_has_the_name_before_the_notice() -> None:
    async with faces_of("Bruno") as faces:
        await faces.say("Bruno, hello")
        assert faces.adapter is not None
        [delivery] = await faces.harnesses["Bruno"].agent.store.ledger.deliveries()
        await faces.adapter.reconcile(replace(delivery, id="another"))
        assert faces.shown[-1].text == f"Bruno: {DUPLICATE_NOTICE}Bruno here."


async def test_a_text_of_full_length_has_room_for_the_name() -> None:
    async with faces_of("Bruno") as faces:
        assert faces.adapter is not None
        await faces.say("Bruno, hello")
        [delivery] = await faces.harnesses["Bruno"].agent.store.ledger.deliveries()
        parts = faces.adapter.split_content(Content("word " * 1500))
        for number, part in enumerate(parts):
            await faces.adapter.deliver(replace(delivery, id=f"part {number}", content=part))
        texts = [shown.text for shown in faces.shown[-len(parts) :]]
    assert len(parts) == 2
    assert all(text.startswith("Bruno: ") for text in texts)
    assert sum(text.count("word") for text in texts) == 1500


async def test_characters_with_the_same_name_cannot_share_a_bot() -> None:
    async with Emulator() as telegram, AsyncExitStack() as stack:
        given = {**telegram.settings(telegram.add_bot(TOKEN)), "TELEGRAM_FACES": "name"}
        handles = []
        for name in ("Ada", "ADA"):
            running = running_agent(model=answering(name), settings=given, character=Character(name=name))
            handles.append((await stack.enter_async_context(running)).agent_runtime.handle)
        with pytest.raises(ConfigError, match="the same name"):
            open_telegram(handles)


async def test_the_cast_is_the_same_whichever_character_shows_the_room_and_a_topic_has_that_of_its_group() -> None:
    async with faces_of("Bruno") as faces:
        topic = faces.telegram.people.add_topic(faces.forum, faces.kim, "Repairs")
        message = faces.telegram.people.say(faces.forum, faces.robin, "Bruno, hello", thread=topic)
        await faces.settle(str(message["message_id"]))
        handles = [harness.agent_runtime.handle for harness in faces.harnesses.values()]
        bodies = []
        for handle in handles[:2]:
            rooms = await handle.conversations.rooms()
            [room] = [room for room in rooms if room.external_id.endswith(f"/{topic}")]
            bodies.append(await handle.casts["telegram"].describe(handle, room))
        changed = (
            await handles[1]
            .casts["telegram"]
            .change(handles[1], room, handles[2].agent_id, is_member=True, source="a test")
        )
    assert [[item.name for item in body.members] for body in bodies] == [["Ada", "Bruno"]] * 2
    assert [item.name for item in changed.members] == list(NAMES)


# Several characters in one process, each with its own token.

SECOND = "2000002:not-a-real-token"


def plan(emulator: Emulator, name: str, token: str, **settings: str) -> AgentConfig:
    """Return the configuration of a character that answers with its name."""
    values = {"TELEGRAM_API_BASE_URL": emulator.url, "STREAMING": "false", "AI_NOTICE": "off", **settings}
    layers = [Layer("the test", {**values, "TELEGRAM_BOT_TOKEN": token})]
    model = ScriptedModel(model_answer(f"{name} here."))
    character = Character(name=name, settings={"telegram": {"rooms": {"*": {"answers": "mentions"}}}})
    return AgentConfig(character, (bootstrap, model.plugin), Settings(layers), InMemoryStore())


async def test_each_character_answers_through_its_own_bot() -> None:
    async with Emulator() as emulator:
        emulator.add_bot(TOKEN)
        emulator.add_bot(SECOND, username="bea_bot", name="Bea")
        plans = [plan(emulator, "Ada", TOKEN), plan(emulator, "Bea", SECOND)]
        async with Runtime(plans) as runtime:
            await runtime.connect(TelegramAdapter(runtime.handles, time_source=SkippingClock().time_source))
            alice = emulator.people.add_user("Alice")
            group = emulator.people.add_group("The group", alice)
            emulator.people.say(group, alice, "@bea_bot hello")
            emulator.people.say(group, alice, "@ada_bot hello")
            await emulator.recorder.wait_until(lambda: len(emulator.recorder.messages) == 2)
    texts_by_bot = {item.message["from"]["username"]: item.text for item in emulator.recorder.messages}
    assert texts_by_bot == {"ada_bot": "Ada here.", "bea_bot": "Bea here."}


async def test_two_characters_with_the_same_token_are_rejected_by_name() -> None:
    async with Emulator() as emulator:
        plans = [plan(emulator, "Ada", TOKEN), plan(emulator, "Bea", TOKEN)]
        async with Runtime(plans) as runtime:
            with pytest.raises(ConfigError, match="Ada and Bea have the same TELEGRAM_BOT_TOKEN"):
                open_telegram(runtime.handles)


async def test_webhooks_on_different_ports_are_rejected() -> None:
    hook = {"TELEGRAM_WEBHOOK_URL": "https://bot.example/hook", "TELEGRAM_WEBHOOK_SECRET": "for-tests-only"}
    async with Emulator() as emulator:
        plans = [
            plan(emulator, "Ada", TOKEN, **hook, TELEGRAM_WEBHOOK_PORT="1"),
            plan(emulator, "Bea", SECOND, **hook, TELEGRAM_WEBHOOK_PORT="2"),
        ]
        async with Runtime(plans) as runtime:
            with pytest.raises(ConfigError, match="TELEGRAM_WEBHOOK"):
                open_telegram(runtime.handles)


@pytest.mark.parametrize("name", ["TELEGRAM_API_BASE_URL", "TELEGRAM_WEBHOOK_URL"])
def test_a_character_file_cannot_redirect_the_operators_token_or_updates(name: str) -> None:
    lent = Layer(
        f"{CHARACTER_FILE} settings",
        {name: "https://elsewhere.example", "TELEGRAM_WEBHOOK_SECRET": "x"},
        is_operator=False,
    )
    own = Layer("the environment", {"TELEGRAM_BOT_TOKEN": TOKEN})
    found = read_settings(Settings([lent, own]))
    assert found.is_default(name.lower())
    assert found.telegram_webhook_secret is None
