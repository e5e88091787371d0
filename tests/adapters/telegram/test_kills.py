"""A-01 to A-18 on Telegram: the process is killed at every stage of a message, and nothing is lost."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from adapters.telegram.emulator import Emulator
from adapters.telegram.outgoing import DUPLICATE_NOTICE
from bot.testing import model_answer
from tests.adapters.telegram.conftest import TOKEN
from tests.chaos.program import ForkServer, Program
from tests.plugins.loopback import Answer, Asked, loopback
from tests.plugins.openai.wire import KEY, completion

SECONDS = 60.0
CLEAR_STAGES = ("ingress.pre_commit", "ingress.post_commit", "outbox.committed")
UNCLEAR_STAGES = ("send.pre_write", "send.post_write", "send.pre_record")
REACTION = model_answer(actions=["REACT"], parameters={"emoji": "👍"})
ProgramFactory = Callable[..., Program]


@pytest.fixture
def program_on(tmp_path: Path, fork_server: ForkServer) -> ProgramFactory:
    """Return a factory for bot processes on the emulator that are killed."""

    def program_on(
        telegram: Emulator, unclear: str = "resend_marked", more: Mapping[str, str] | None = None
    ) -> Program:
        settings = {
            "STREAMING": "false",
            "LATEST_RESPONSE": "queue",
            "TELEGRAM_UNCLEAR": unclear,
            "ON_EDIT": "rerun",
            **telegram.settings(telegram.add_bot(TOKEN)),
            **(more or {}),
        }
        return Program(fork_server, tmp_path, settings, "telegram", plugins=["sql"])

    return program_on


@pytest.mark.long
@pytest.mark.failure("A-01", "A-16")
async def test_killed_at_every_stage_nothing_is_lost_and_possible_duplicates_are_marked(
    program_on: ProgramFactory,
) -> None:
    async with Emulator() as telegram:
        program = program_on(telegram)
        chats = {}
        for stage in (*CLEAR_STAGES, *UNCLEAR_STAGES):
            person = telegram.people.add_user(stage.replace(".", " "))
            chats[stage] = telegram.people.open_private_chat(person)
            telegram.people.say(chats[stage], person, "hello")
            await program.run_until_killed(f"{stage}:1")
        texts_in = telegram.recorder.texts
        async with program.running() as bot:
            await telegram.recorder.wait_until(lambda: all(texts_in(chat["id"]) for chat in chats.values()), SECONDS)
            bot.stop()
            await bot.wait()
    for stage, chat in chats.items():
        texts = texts_in(chat["id"])
        plain = [text for text in texts if not text.startswith(DUPLICATE_NOTICE)]
        marked = [text.removeprefix(DUPLICATE_NOTICE) for text in texts if text.startswith(DUPLICATE_NOTICE)]
        assert texts, f"{stage}: lost"
        assert len(plain) <= 1, f"{stage}: a double without a mark"
        assert not plain or set(marked) <= set(plain), f"{stage}: the mark stands on something else"


@pytest.mark.long
@pytest.mark.failure("A-01", "A-16")
async def test_killed_twenty_times_each_question_to_a_guest_is_answered_at_most_once_and_none_is_lost(
    program_on: ProgramFactory,
) -> None:
    async with Emulator() as telegram:
        program = program_on(telegram, more={"TELEGRAM_GUEST": "on", "AI_NOTICE": "off", "MESSAGES_PER_PERSON": "0"})
        kim = telegram.people.add_user("Kim")
        private = {"id": kim["id"], "type": "private", "first_name": "Kim"}
        stages = (*CLEAR_STAGES, *UNCLEAR_STAGES)
        for number in range(20):
            telegram.people.ask_guest(private, kim, f"@ada_bot what is {number} + 100?")
            await program.run_until_killed(f"{stages[number % len(stages)]}:1")
        async with program.running() as bot:
            await telegram.recorder.wait_until(lambda: not telegram.state.guest_queries, SECONDS)
            bot.stop()
            await bot.wait()
    assert len(telegram.recorder.messages) == 20, "one answer to each question"


@pytest.mark.long
@pytest.mark.failure("A-01", "A-16")
async def test_killed_twenty_times_each_inline_answer_that_was_sent_is_recorded_once(
    program_on: ProgramFactory,
) -> None:
    async with Emulator() as telegram:
        program = program_on(telegram, more={"TELEGRAM_INLINE": "on", "MESSAGES_PER_PERSON": "0"})
        kim, recorder = telegram.people.add_user("Kim"), telegram.recorder
        async with program.running() as bot:
            query = telegram.people.type_inline(kim, "what is 2 + 2?")
            await recorder.wait_until(lambda: query in recorder.inline_answers, SECONDS)
            bot.stop()
            await bot.wait()
        [result] = recorder.inline_answers[query]["results"]
        stages = ("command.received", "command.executed", "outbox.committed", "send.pre_record")
        for number in range(20):
            telegram.people.send_inline(kim, "what is 2 + 2?", result["id"])
            await program.run_until_killed(f"{stages[number % len(stages)]}:1")
        bots = telegram.state.bots.values()
        async with program.running() as bot:
            await recorder.wait_until(lambda: not any(item.queue for item in bots), SECONDS)
            bot.stop()
            await bot.wait()
    with closing(sqlite3.connect(program.database)) as database:
        receipts = database.execute("SELECT outcome FROM receipts").fetchall()
        states = database.execute("SELECT DISTINCT state FROM deliveries").fetchall()
    assert len(receipts) == 20
    assert states == [("sent",)]
    assert recorder.texts() == []


@pytest.mark.long
@pytest.mark.failure("A-17")
async def test_with_hold_a_kill_during_a_send_never_duplicates_a_message(program_on: ProgramFactory) -> None:
    async with Emulator() as telegram:
        program = program_on(telegram, unclear="hold")
        kim = telegram.people.add_user("Kim")
        chat = telegram.people.open_private_chat(kim)
        telegram.people.say(chat, kim, "hello")
        await program.run_until_killed("send.pre_record:1")
        async with program.running() as bot:
            telegram.people.say(chat, kim, "what is 2 + 2?")
            await telegram.recorder.wait_until(lambda: len(telegram.recorder.texts()) == 2, SECONDS)
            bot.stop()
            await bot.wait()
        assert len(set(telegram.recorder.texts())) == 2
        assert not [text for text in telegram.recorder.texts() if text.startswith(DUPLICATE_NOTICE)]


@pytest.mark.long
@pytest.mark.failure("A-08", "A-16")
async def test_killed_during_a_command_response_or_an_edit(program_on: ProgramFactory) -> None:
    async with Emulator() as telegram:
        program, ledger = program_on(telegram), telegram.recorder
        kim, robin = telegram.people.add_user("Kim"), telegram.people.add_user("Robin")
        chat, other = telegram.people.open_private_chat(kim), telegram.people.open_private_chat(robin)
        question = telegram.people.say(chat, kim, "what is 2 + 2?")
        async with program.running_until_killed("errand.pre_write:1"):
            await ledger.wait_until(lambda: bool(ledger.texts(chat["id"])), SECONDS)
            before = ledger.texts(chat["id"])
            telegram.people.edit(question, "what is 3 + 4?")
            telegram.people.say(other, robin, "/forget_me")
        assert ledger.texts(other["id"]) == []
        await program.run_until_killed("edit.pre_write:1")
        assert ledger.texts(chat["id"]) == before
        await program.run_until_killed("edit.post_write:1")
        async with program.running() as bot:
            await ledger.wait_until(lambda: ledger.texts(chat["id"]) != before, SECONDS)
            await ledger.wait_until(lambda: bool(ledger.texts(other["id"])), SECONDS)
            bot.stop()
            await bot.wait()
    assert len([item for item in ledger.messages if item.room == chat["id"]]) == 1
    assert len(set(ledger.texts(other["id"]))) == 1


@pytest.mark.long
@pytest.mark.parametrize(("stage", "count"), [("outbox.committed", 1), ("send.pre_record", 2)])
async def test_a_voice_reply_that_was_stored_is_not_paid_for_again_after_a_kill(
    tmp_path: Path, fork_server: ForkServer, stage: str, count: int
) -> None:
    def answer(asked: Asked) -> Answer:
        is_speech = asked.path.endswith("/audio/speech")
        return Answer(b"OggS\0 voice", content_type="audio/ogg") if is_speech else Answer(completion("I am well."))

    async with Emulator() as telegram, loopback() as api:
        api.answers = answer
        settings = {
            "STREAMING": "false",
            "VOICE_REPLIES": "always",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{api.url}/v1",
            "OPENAI_LARGE_MODEL": "large",
            "OPENAI_SMALL_MODEL": "small",
            "OPENAI_TTS_MODEL": "speaker",
            **telegram.settings(telegram.add_bot(TOKEN)),
        }
        program = Program(fork_server, tmp_path, settings, "telegram", plugins=["sql", "openai"])
        alice = telegram.people.add_user("Alice")
        chat = telegram.people.open_private_chat(alice)
        telegram.people.say(chat, alice, "hello")
        await program.run_until_killed(f"{stage}:1")
        async with program.running() as bot:
            await telegram.recorder.wait_until(lambda: len(telegram.recorder.texts(chat["id"])) == count, SECONDS)
            bot.stop()
            await bot.wait()
        spoken = [asked.json["input"] for asked in api.asked if asked.path.endswith("/audio/speech")]
        shown = telegram.recorder.messages
    assert spoken == ["I am well."]
    assert [message.files for message in shown] == [{"voice.ogg": b"OggS\0 voice"}] * count
    assert [message.text for message in shown] == ["I am well.", f"{DUPLICATE_NOTICE}I am well."][-count:]


@pytest.mark.matrix(1)
@pytest.mark.failure("A-08", "A-16")
@pytest.mark.parametrize("unclear", ["hold", "resend_marked"])
@pytest.mark.parametrize("stage", ["command.executed", "errand.post_write", "send.pre_record"])
async def test_a_command_is_run_and_answered_once_where_the_process_is_killed(
    program_on: ProgramFactory, stage: str, unclear: str
) -> None:
    async with Emulator() as telegram:
        program, recorder = program_on(telegram, unclear), telegram.recorder
        kim = telegram.people.add_user("Kim")
        chat = telegram.people.open_private_chat(kim)
        telegram.people.say(chat, kim, "/forget_me")
        await program.run_until_killed(f"{stage}:1")
        async with program.running() as bot:
            telegram.people.say(chat, kim, "what is 2 + 2?")
            await recorder.wait_until(lambda: "It comes to 4." in recorder.texts(), SECONDS)
            bot.stop()
            await bot.wait()
        *shown, _ = recorder.texts()
    plain = [text for text in shown if not text.startswith(DUPLICATE_NOTICE)]
    assert len(plain) == 1
    assert plain[0].startswith("/forget_me was interrupted") is (stage == "command.executed")
    assert {text.removeprefix(DUPLICATE_NOTICE) for text in shown} == set(plain)
    assert unclear == "resend_marked" or len(shown) == 1


STAGES_OF_AN_ACTION = (
    *("ingress.pre_commit", "ingress.post_commit", "turn.claimed", "model.post", "action.pre", "action.post"),
    *("turn.pre_commit", "outbox.committed", "react.pre_write", "react.post_write", "send.pre_record", "send.part1"),
)
STAGES_OF_A_DECISION = (
    *("turn.claimed", "model.decide", "turn.pre_commit", "outbox.committed"),
    *("react.pre_write", "react.post_write", "send.pre_record", "send.part1"),
)


@pytest.mark.long
@pytest.mark.failure("A-01", "A-16")
async def test_killed_at_every_stage_of_a_reaction_each_is_set_and_nothing_is_said(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    def answer(asked: Asked) -> Answer:
        is_decision = "should say something now" in asked.json["messages"][-1]["content"]
        decision = "<response><action>REACT</action><emoji>👍</emoji></response>"
        return Answer(completion(decision if is_decision else REACTION))

    async with Emulator() as telegram, loopback() as api:
        api.answers = answer
        settings = {
            "STREAMING": "false",
            "REACTIONS": "100",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{api.url}/v1",
            "OPENAI_LARGE_MODEL": "large",
            "OPENAI_SMALL_MODEL": "small",
            **telegram.settings(telegram.add_bot(TOKEN)),
        }
        program = Program(fork_server, tmp_path, settings, "telegram", plugins=["sql", "openai"])
        stages = [*((stage, "private") for stage in STAGES_OF_AN_ACTION), *((s, "group") for s in STAGES_OF_A_DECISION)]
        messages = []
        for stage, kind in stages:
            person, name = telegram.people.add_user("Kim"), f"{kind} {stage}"
            is_private = kind == "private"
            chat = telegram.people.open_private_chat(person) if is_private else telegram.people.add_group(name, person)
            message = telegram.people.say(chat, person, "It works now, at last!")
            messages.append((name, (chat["id"], message["message_id"])))
            await program.run_until_killed(f"{stage}:1")
        reactions = telegram.state.reactions
        async with program.running() as bot:
            await telegram.recorder.wait_until(lambda: all(reactions.get(key) for _, key in messages), SECONDS)
            bot.stop()
            await bot.wait()
        shown = {name: list(reactions[key].values()) for name, key in messages}
        assert len(stages) == 20
        assert shown == {name: ["👍"] for name, _ in messages}
        assert telegram.recorder.texts() == []
    with closing(sqlite3.connect(program.database)) as database:
        outcomes = database.execute("SELECT outcome, count(*) FROM receipts GROUP BY outcome").fetchall()
        parts = database.execute("SELECT kind, state, count(*) FROM deliveries GROUP BY kind, state").fetchall()
    assert (outcomes, parts) == ([("answered", 20)], [("reaction", "sent", 20)])


STAGES_OF_A_TOPIC = (  # the first commit and the first part are the topic's, the second ones those of the answer
    *("ingress.pre_commit", "ingress.post_commit", "turn.claimed", "model.reply", "model.post", "action.pre"),
    *("outbox.committed", "thread.pre_write", "thread.post_write", "send.pre_record", "send.part1", "action.post"),
    *("chain.1", "turn.pre_commit", "outbox.committed:2", "send.pre_write", "send.post_write", "send.pre_record:2"),
    *("send.part1:2", "thread.post_write"),
)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.failure("A-01", "A-16")
async def test_killed_twenty_times_no_topic_is_lost_and_possible_duplicates_are_marked(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    opening = model_answer("Here we go.", actions=["REPLY", "OPEN_THREAD"], parameters={"name": "The engine"})
    async with Emulator() as telegram, loopback() as api:
        api.answers = lambda asked: Answer(completion(opening))
        bot_record, state, recorder = telegram.add_bot(TOKEN), telegram.state, telegram.recorder
        settings = {
            "STREAMING": "false",
            "THREADS": "100",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{api.url}/v1",
            "OPENAI_LARGE_MODEL": "large",
            "OPENAI_SMALL_MODEL": "small",
            **telegram.settings(bot_record),
        }
        program = Program(fork_server, tmp_path, settings, "telegram", plugins=["sql", "openai"])
        chats = []
        for stage in STAGES_OF_A_TOPIC:
            kim = telegram.people.add_user("Kim")
            chat = telegram.people.add_group(f"{stage} {len(chats)}", owner=kim, is_forum=True)
            state.members[chat["id"]][bot_record.id] = "administrator"
            telegram.people.say(chat, kim, "@ada_bot let's take this to a topic")
            chats.append(chat)
            await program.run_until_killed(stage if stage[-1] == "2" else f"{stage}:1")
            async with program.running() as bot:
                await recorder.wait_until(lambda: bool(recorder.texts(chats[-1]["id"])), SECONDS)
                bot.stop()
                await bot.wait()
    mark = DUPLICATE_NOTICE.strip()
    for stage, chat in zip(STAGES_OF_A_TOPIC, chats, strict=True):
        opened = {topic: name for (chat_id, topic), name in state.topics.items() if chat_id == chat["id"]}
        marked = [name for name in opened.values() if name.startswith(mark)]
        assert opened, f"{stage}: lost"
        assert len(opened) - len(marked) <= 1, f"{stage}: a double without a mark"
        answers = [message for message in recorder.messages if message.room == chat["id"]]
        assert {message.thread for message in answers} == {max(opened)}, f"{stage}: said elsewhere"
        plain = [message for message in answers if not message.text.startswith(mark)]
        assert len(plain) <= 1, f"{stage}: answered twice without a mark"
    with closing(sqlite3.connect(program.database)) as database:
        parts = database.execute("SELECT kind, state, count(*) FROM deliveries GROUP BY kind, state").fetchall()
    assert (len(chats), parts) == (20, [("reply", "sent", 20), ("thread", "sent", 20)])


@pytest.mark.long
@pytest.mark.failure("A-01", "A-16")
async def test_characters_that_share_a_bot_killed_twenty_times_answer_each_message_once(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    names = ("Ada", "Bruno", "Clara")
    async with Emulator() as telegram:
        people, recorder = telegram.people, telegram.recorder
        kim, robin = people.add_user("Kim"), people.add_user("Robin")
        settings = {
            "STREAMING": "false",
            "TELEGRAM_FACES": "name",
            "MESSAGES_PER_PERSON": "0",
            **telegram.settings(telegram.add_bot(TOKEN)),
        }
        forum = people.add_group("Quay", robin, owner=kim, is_forum=True)
        # of the same room, a later message would be answered together with an earlier one
        topics = [people.add_topic(forum, kim, f"{number}") for number in range(20)]
        program = Program(fork_server, tmp_path, settings, "telegram", plugins=["sql"], names=names)
        async with program.running() as bot:
            for number, name in enumerate(names[1:], 1):
                people.say(forum, kim, f"/cast add {name}")
                await recorder.wait_until(lambda number=number: len(recorder.messages) >= number, SECONDS)
            bot.stop()
            await bot.wait()
        stages = (*CLEAR_STAGES, *UNCLEAR_STAGES)
        for number, topic in enumerate(topics):
            people.say(forum, robin, f"{names[number % len(names)]}, hello", thread=topic)
            await program.run_until_killed(f"{stages[number % len(stages)]}:1")
            async with program.running() as bot:
                await recorder.wait_until(lambda topic=topic: bool(recorder.texts(thread=topic)), SECONDS)
                await wait_until_sent(program.database, number + len(names))
                bot.stop()
                await bot.wait()
    for number, topic in enumerate(topics):
        texts, name = recorder.texts(thread=topic), names[number % len(names)]
        assert all(text.startswith(f"{name}: ") for text in texts), f"another one than {name} answers {number}"
        plain = [text for text in texts if DUPLICATE_NOTICE not in text]
        marked = [text.replace(DUPLICATE_NOTICE, "") for text in texts if DUPLICATE_NOTICE in text]
        assert len(plain) <= 1, f"{number}: a double without a mark"
        assert len(marked) <= 1
        assert not plain or {*marked} <= {*plain}


async def wait_until_sent(database: Path, count: int) -> None:
    """Wait until there are so many deliveries, no more, and all are sent."""
    async with asyncio.timeout(SECONDS):
        while True:
            with closing(sqlite3.connect(database)) as connection:
                states = connection.execute("SELECT state FROM deliveries").fetchall()
            assert len(states) <= count, "a message is answered twice"
            if states == [("sent",)] * count:
                return
            await asyncio.sleep(0.02)
