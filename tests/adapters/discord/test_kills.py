"""A-01, A-16: a process killed at any stage answers each message once."""

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest

from adapters.discord.emulator import Emulator
from adapters.discord.emulator.state import THREAD, Recorder
from bot.testing import model_answer
from tests.adapters.discord.server import TOKEN, EmulatedServer
from tests.chaos.program import ForkServer, Program
from tests.plugins.loopback import Answer, Asked, loopback
from tests.plugins.openai.wire import KEY, completion

SECONDS = 60.0
OUTSIDE_STAGES = ["send.post_write", "send.pre_record", "outbox.committed", "ingress.post_commit", "ingress.pre_commit"]
STAGES_OF_AN_ACTION = (
    *("ingress.pre_commit", "ingress.post_commit", "turn.claimed", "model.post", "action.pre", "action.post"),
    *("turn.pre_commit", "outbox.committed", "react.pre_write", "react.post_write", "send.pre_record", "send.part1"),
)
STAGES_OF_A_DECISION = (
    *("turn.claimed", "model.decide", "turn.pre_commit", "outbox.committed"),
    *("react.pre_write", "react.post_write", "send.pre_record", "send.part1"),
)
STAGES_OF_A_THREAD = (  # the first commit and the first part are the thread's, the second ones those of the answer
    *("ingress.pre_commit", "ingress.post_commit", "turn.claimed", "model.reply", "model.post", "action.pre"),
    *("outbox.committed", "thread.pre_write", "thread.post_write", "send.pre_record", "send.part1", "action.post"),
    *("chain.1", "turn.pre_commit", "outbox.committed:2", "send.pre_write", "send.post_write", "send.pre_record:2"),
    *("send.part1:2", "thread.post_write"),
)
STAGES = ["ingress.pre_commit", "send.pre_write", "send.post_write", "send.pre_record"]


@pytest.mark.long
@pytest.mark.failure("A-16")
async def test_killed_at_every_stage_nothing_is_lost_or_sent_twice(tmp_path: Path, fork_server: ForkServer) -> None:
    async with Emulator() as emulator:
        server = EmulatedServer(emulator)
        ledger, say = emulator.recorder, emulator.people.say
        settings = {
            "STREAMING": "false",
            "DISCORD_API_TOKEN": TOKEN,
            "DISCORD_API_BASE_URL": emulator.url,
            "PYTHONWARNINGS": "ignore",
        }
        program = Program(fork_server, tmp_path, settings, "discord", plugins=["sql"])
        async with program.running():
            await ledger.wait_until(lambda: ledger.counts["ready"] > 0, SECONDS)
            await say(server.direct(server.kim), server.kim, "hello")
            await ledger.wait_until(lambda: len(ledger.texts()) == 1, SECONDS)
        for stage in STAGES:
            async with program.running_until_killed(f"{stage}:1"):
                await say(server.direct(server.kim), server.kim, f"hello before {stage}")
        async with program.running() as bot:
            await ledger.wait_until(lambda: len(ledger.texts()) > len(STAGES), SECONDS)
            bot.stop()
            await bot.wait()
    answered = [message.room for message in ledger.messages]
    assert len(set(answered)) == len(answered) == 1 + len(STAGES)


@pytest.mark.long
@pytest.mark.failure("A-16")
async def test_characters_killed_twenty_times_answer_each_message_once(tmp_path: Path, fork_server: ForkServer) -> None:
    names = ("Ada", "Bruno", "Clara")
    async with Emulator() as emulator:
        server = EmulatedServer(emulator)
        recorder, say = emulator.recorder, emulator.people.say
        # of the same room, a later message would be answered together with an earlier one
        threads = [emulator.state.add_channel(server.guild, f"{number}", THREAD, server.lobby) for number in range(20)]
        settings = {
            "STREAMING": "false",
            "DISCORD_API_TOKEN": TOKEN,
            "DISCORD_API_BASE_URL": emulator.url,
            "DISCORD_FACES": "webhook",
            "MESSAGES_PER_PERSON": "0",
            "PYTHONWARNINGS": "ignore",
        }
        program = Program(fork_server, tmp_path, settings, "discord", plugins=["sql"], names=names)
        async with program.running():
            await recorder.wait_until(lambda: recorder.counts["ready"] > 0, SECONDS)
            for name in names[1:]:
                options = {"action": "add", "name": name}
                await emulator.interactions.run_command(server.bot, server.kim, server.lobby, "cast", **options)
            await recorder.wait_until(lambda: recorder.counts["answered"] == 2, SECONDS)
            asked = {await say(server.lobby, server.robin, "Ada, hello"): "Ada"}
            await recorder.wait_until(lambda: len(recorder.messages) == 1, SECONDS)
        for number, thread in enumerate(threads):
            async with program.running_until_killed(f"{STAGES[number % len(STAGES)]}:1"):
                name = names[number % len(names)]
                asked[await say(thread, server.robin, f"{name}, hello {number}")] = name
            async with program.running() as bot:
                await recorder.wait_until(lambda: len(recorder.messages) >= len(asked), SECONDS)
                bot.stop()
                await bot.wait()
    answered = {link: shown.author for shown in recorder.messages for link in asked if f"/{link}>" in shown.texts[0]}
    assert answered == asked
    assert len(recorder.messages) == len(asked)


@pytest.mark.long
@pytest.mark.failure("A-08", "A-16")
async def test_a_command_that_was_answered_before_its_response_was_marked_as_sent_is_shown_once(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    async with Emulator() as emulator:
        server = EmulatedServer(emulator)
        recorder, interactions = emulator.recorder, emulator.interactions
        settings = {"DISCORD_API_TOKEN": TOKEN, "DISCORD_API_BASE_URL": emulator.url, "PYTHONWARNINGS": "ignore"}
        program = Program(fork_server, tmp_path, settings, "discord", plugins=["sql"])
        async with program.running_until_killed("send.pre_record:1"):
            await recorder.wait_until(lambda: recorder.counts["ready"] > 0, SECONDS)
            interaction = await interactions.run_command(server.bot, server.robin, server.lobby, "forget-me")
        async with program.running() as bot:
            await recorder.wait_until(lambda: recorder.counts["answered"] == 2, SECONDS)
            bot.stop()
            await bot.wait()
    [shown] = recorder.responses[interaction]
    assert "cannot be undone" in shown["content"]


@pytest.mark.long
@pytest.mark.failure("A-16")
async def test_killed_twenty_times_each_question_from_outside_is_answered_once(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    async with Emulator() as emulator:
        server = EmulatedServer(emulator)
        recorder, state = emulator.recorder, emulator.state
        elsewhere = state.add_channel(state.add_guild("Elsewhere", server.kim, [server.robin]), "market")
        settings = {
            "DISCORD_API_TOKEN": TOKEN,
            "DISCORD_API_BASE_URL": emulator.url,
            "DISCORD_USER_INSTALL": "on",
            "MESSAGES_PER_PERSON": "0",
            "PYTHONWARNINGS": "ignore",
        }
        program = Program(fork_server, tmp_path, settings, "discord", plugins=["sql"])
        asked: list[str] = []
        for number in range(20):
            sessions = recorder.counts["ready"] + recorder.counts["resume"]
            async with program.running(f"{OUTSIDE_STAGES[number % len(OUTSIDE_STAGES)]}:1") as bot:
                killed = asyncio.create_task(bot.wait())  # before it connects if an earlier question is answered first
                connected = asyncio.create_task(
                    recorder.wait_until(partial(has_connected, recorder, sessions), SECONDS)
                )
                await asyncio.wait([killed, connected], return_when=asyncio.FIRST_COMPLETED)
                if not killed.done():
                    arguments = (server.bot, server.robin, elsewhere, "ask")
                    question = f"What is {number} + 1?"
                    asked.append(await emulator.interactions.run_command(*arguments, question=question))
                connected.cancel()
                assert await killed == -signal.SIGKILL
        acknowledged = [recorder.responses[item] for item in asked if recorder.responses[item]]
        async with program.running() as bot:
            await recorder.wait_until(lambda: all(item[0]["content"] for item in acknowledged), SECONDS)
            bot.stop()
            await bot.wait()
    assert [len(item) for item in acknowledged] == [1] * len(acknowledged), "nothing is shown twice"
    with closing(sqlite3.connect(program.database)) as database:
        states = dict(database.execute("SELECT state, COUNT(*) FROM deliveries GROUP BY state").fetchall())
        tokens = database.execute("SELECT COUNT(*) FROM rooms WHERE external_id LIKE '%interaction%'").fetchone()
    assert len(acknowledged) > 3, "not only the reason why it failed is tested"
    assert states["sent"] >= len(acknowledged)
    under_way = {"attempting"}  # as the bot was stopped
    assert set(states) - under_way <= {"sent", "failed"}, "what was never acknowledged fails with the reason"
    assert tokens == (0,)


@pytest.mark.long
@pytest.mark.failure("A-16")
async def test_killed_at_every_stage_nothing_is_kept_of_a_person_who_is_not_read(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    async with Emulator() as emulator:
        server = EmulatedServer(emulator)
        recorder, interactions, say = emulator.recorder, emulator.interactions, emulator.people.say
        settings = {"DISCORD_API_TOKEN": TOKEN, "DISCORD_API_BASE_URL": emulator.url, "PYTHONWARNINGS": "ignore"}
        program = Program(fork_server, tmp_path, settings, "discord", plugins=["sql"])
        async with program.running():
            await recorder.wait_until(lambda: recorder.counts["ready"] > 0, SECONDS)
            await say(server.lobby, server.kim, f"{server.call} hello")
            await recorder.wait_until(lambda: len(recorder.texts()) == 1, SECONDS)
        async with program.running_until_killed("command.executed:1"):
            await recorder.wait_until(lambda: recorder.counts["ready"] + recorder.counts["resume"] > 1, SECONDS)
            await interactions.run_command(server.bot, server.robin, server.lobby, "ignore-me")
        hidden = []
        for stage in ("ingress.pre_commit", "ingress.batch", "ingress.post_commit"):
            async with program.running_until_killed(f"{stage}:1"):
                hidden.append(await say(server.lobby, server.robin, f"{server.call} my zebracorn before {stage}"))
        async with program.running() as bot:
            await say(server.lobby, server.kim, f"{server.call} hello")
            await recorder.wait_until(lambda: len(recorder.texts()) == 2, SECONDS)
            bot.stop()
            await bot.wait()
    with closing(sqlite3.connect(program.database)) as database:
        rows = database.execute("SELECT message_id, outcome, rule FROM receipts WHERE rule = 'not_read'").fetchall()
    assert sorted(rows) == [(message_id, "ignored", "not_read") for message_id in sorted(hidden)]
    assert find_files(tmp_path, b"zebracorn") == []


@asynccontextmanager
async def program_that_answers(
    tmp_path: Path, fork_server: ForkServer, emulator: Emulator, answer: Callable[[str], str]
) -> AsyncIterator[Program]:
    """Yield a bot program whose model answers a prompt with what `answer` returns."""
    async with loopback() as api:
        api.answers = lambda asked: Answer(completion(answer(_prompt_of(asked))))
        settings = {
            "STREAMING": "false",
            "DISCORD_API_TOKEN": TOKEN,
            "DISCORD_API_BASE_URL": emulator.url,
            "MESSAGES_PER_PERSON": "0",
            "REACTIONS": "100",
            "THREADS": "100",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{api.url}/v1",
            "OPENAI_LARGE_MODEL": "large",
            "OPENAI_SMALL_MODEL": "small",
            "PYTHONWARNINGS": "ignore",
        }
        yield Program(fork_server, tmp_path, settings, "discord", plugins=["sql", "openai"])


def _prompt_of(asked: Asked) -> str:
    return str(asked.json["messages"][-1]["content"])


async def kill_at_every_stage(
    program: Program,
    server: EmulatedServer,
    stages: Sequence[tuple[str, str]],
    text: str,
    is_answered: Callable[[str], bool],
) -> dict[tuple[str, str], str]:
    """Say a text in a channel for each stage, kill the program there, and let the next start answer it.

    Before that it answers in the lobby, so that there is a session to resume. Return the ids of the messages.
    """
    recorder, say = server.emulator.recorder, server.emulator.people.say
    async with program.running() as bot:
        await recorder.wait_until(lambda: recorder.counts["ready"] > 0, SECONDS)
        message_id = await say(server.lobby, server.kim, text)
        await recorder.wait_until(partial(is_answered, message_id), SECONDS)
        bot.stop()
        await bot.wait()
    said = {("", server.lobby): message_id}
    for stage, channel in stages:
        point = stage if stage.rpartition(":")[2].isdigit() else f"{stage}:1"
        async with program.running_until_killed(point):
            message_id = said[stage, channel] = await say(channel, server.kim, text)
        async with program.running() as bot:
            await recorder.wait_until(partial(is_answered, message_id), SECONDS)
            bot.stop()
            await bot.wait()
    return said


def read_parts(program: Program) -> list[tuple[str, str, int]]:
    """Return how many deliveries there are of each kind in each state."""
    with closing(sqlite3.connect(program.database)) as database:
        return database.execute("SELECT kind, state, count(*) FROM deliveries GROUP BY kind, state").fetchall()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.failure("A-01", "A-16")
async def test_killed_twenty_times_each_reaction_is_set_and_nothing_is_said(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    def answer(prompt: str) -> str:
        decision = "<response><action>REACT</action><emoji>👍</emoji></response>"
        is_decision = "should say something now" in prompt
        return decision if is_decision else model_answer(actions=["REACT"], parameters={"emoji": "👍"})

    async with Emulator() as emulator, program_that_answers(tmp_path, fork_server, emulator, answer) as program:
        server, state, recorder = EmulatedServer(emulator), emulator.state, emulator.recorder
        stages = [
            *((stage, server.direct(server.kim)) for stage in STAGES_OF_AN_ACTION),
            *((stage, state.add_channel(server.guild, f"quay {stage}")) for stage in STAGES_OF_A_DECISION),
        ]
        said = await kill_at_every_stage(
            program, server, stages, "It works now, at last!", lambda message_id: bool(state.reactions.get(message_id))
        )
        shown = {stage: state.reactions[message_id] for stage, message_id in said.items()}
    assert len(said) == 21
    assert shown == {stage: {"👍": (server.bot,)} for stage in said}
    assert recorder.texts() == []
    assert read_parts(program) == [("reaction", "sent", 21)]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.failure("A-01", "A-16")
async def test_killed_twenty_times_each_thread_is_opened_once_with_a_single_answer(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    opening = model_answer("Here we go.", actions=["REPLY", "OPEN_THREAD"], parameters={"name": "The engine"})
    async with (
        Emulator() as emulator,
        program_that_answers(tmp_path, fork_server, emulator, lambda _: opening) as program,
    ):
        server, state, recorder = EmulatedServer(emulator), emulator.state, emulator.recorder
        names = enumerate(STAGES_OF_A_THREAD)
        stages = [(stage, state.add_channel(server.guild, f"quay {number}")) for number, stage in names]
        said = await kill_at_every_stage(
            program,
            server,
            stages,
            f"{server.call} let's take this to a thread",
            lambda message_id: any(message.room == message_id for message in recorder.messages),
        )
        threads = [channel for channel in state.channels.values() if channel["type"] == THREAD]
    assert len(said) == 21
    assert sorted(thread["id"] for thread in threads) == sorted(said.values()), "none is lost, and none opened twice"
    assert sorted(message.room for message in recorder.messages) == sorted(said.values()), "one answer, in the thread"
    assert recorder.texts() == ["Here we go."] * 21
    assert read_parts(program) == [("reply", "sent", 21), ("thread", "sent", 21)]


def has_connected(recorder: Recorder, sessions: int) -> bool:
    """Return whether a session has begun or been resumed since there were so many."""
    return recorder.counts["ready"] + recorder.counts["resume"] > sessions


def find_files(folder: Path, data: bytes) -> list[Path]:
    """Return the files that hold some data."""
    return [path for path in folder.rglob("*") if path.is_file() and data in path.read_bytes()]
