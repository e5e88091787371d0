"""Rules of commands: the same on every platform, answered once, given by those who may."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import pytest

from bot.commands import builtin
from bot.commands.dispatcher import MAX_COMMANDS, RATE_WINDOW
from bot.domain.character import Character
from bot.domain.environment import ChannelType, ParticipantState, Role
from bot.domain.inbound import CommandResponse, ErasureResult
from bot.domain.ledger import Outcome, Receipt
from bot.errors import InboxClosed, PluginError
from bot.models.types import ModelType, TextRequest, TextResult
from bot.plugin_system.components import CommandContext, command, model
from bot.plugin_system.plugin import Plugin
from bot.receipts import TRACE_KEY
from bot.store.inmemory import InMemoryStore
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from bot.turn import Agent
from bot.user_texts import user_text
from tests.commands.asking import give, press
from tests.scheduling import START
from tests.store.conftest import ManualClock

DM, GROUP = ChannelType.DM, ChannelType.GROUP
BUILT_IN = [
    "ask",
    "stop",
    "why",
    "mute",
    "unmute",
    "responsiveness",
    "privacy",
    "forget-me",
    "export-me",
    "help",
    "start",
]


@pytest.fixture
async def stage() -> AsyncIterator[AgentHarness]:
    async with running_agent() as stage:
        yield stage


async def test_start_sends_one_of_the_characters_own_greetings_with_the_name_of_the_person() -> None:
    character = Character(name="Ada", greetings=("Ahoy {{user}}!", "Welcome aboard, {{user}}."))
    async with running_agent(character=character) as stage:
        texts = {(await give(stage, "start", author="Bob", kind=DM, event_id=f"{n}")).text for n in range(8)}
    assert texts == {"Ahoy Bob!", "Welcome aboard, Bob."}


@pytest.mark.parametrize(
    ("kind", "is_hidden", "is_known"), [(DM, True, True), (GROUP, False, True), (GROUP, True, False)]
)
async def test_a_greeting_that_the_room_sees_is_in_the_prompt_of_the_next_answer(
    kind: ChannelType, is_hidden: bool, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingAdapter, "hides_responses", is_hidden)
    character = Character(name="Ada", greetings=("Ahoy {{user}}! Shall I tell of the storm?",))
    async with running_agent(character=character) as stage:
        assert (await give(stage, "start", kind=kind, event_id="e1")).text == "Ahoy Alice! Shall I tell of the storm?"
        await give(stage, "start", kind=kind, event_id="e1")
        await stage.send("Yes, Ada", kind=kind)
        assert stage.texts == ["Hello."]
        prompt = stage.model.requests[-1].prompt
        assert prompt.count("Shall I tell of the storm?") == is_known


async def test_a_forgotten_persons_greeting_is_deleted() -> None:
    async with running_agent(character=Character(name="Ada", greetings=("Ahoy {{user}}!",))) as stage:
        await give(stage, "start", kind=DM)
        await give(stage, "forget-me", kind=DM)
        await give(stage, "forget-me", kind=DM)
        room = make_message("", sent_at=stage.agent.clock(), kind=DM).room
        assert await stage.agent.store.memories.recent(room.id) == []


async def attendance(stage: AgentHarness) -> ParticipantState:
    room = make_message("", sent_at=stage.agent.clock()).room
    return await stage.agent.store.worlds.participant_state(room.id)


@command("roll", "Roll dice.", ephemeral=False)
async def roll(
    asking: CommandContext,
    sides: Annotated[int, "How many sides"] = 6,
    manner: Literal["loud", "quiet"] = "loud",
    wish: str = "",
) -> str:
    """Say what would be rolled."""
    return f"{asking.invocation.author.name} rolls {sides}, {manner}: {wish}"


@command("raise-hell", "Fail.")
async def raise_hell(asking: CommandContext) -> None:
    """Fail."""
    raise RuntimeError("the details are for the log")


@command("restart", "Restart.", role=Role.OWNER)
async def restart(asking: CommandContext) -> str:
    """Say so."""
    return "restarting"


async def test_every_bot_has_the_same_commands_and_then_those_of_its_plugins() -> None:
    async with running_agent(Plugin("dice", commands=[roll])) as stage:
        specs = stage.agent_runtime.handle.commands
        assert [spec.name for spec in specs] == [*BUILT_IN, "what-do-you-know-about-me", "share-my-facts", "roll"]
        assert specs[-1].plugin == "dice"
        assert specs[-1].parameters["properties"]["manner"]["enum"] == ["loud", "quiet"]
        listed = (await give(stage, "help")).text
    assert "/roll [sides] [manner] [wish]  Roll dice." in listed
    assert "/ask question" in listed


async def test_what_is_asked_is_a_message_like_any_other_and_answered_once() -> None:
    async with running_agent(model=ScriptedModel(model_answer("Forty-two."))) as stage:
        shown = await give(stage, "ask", text="What is the answer?", event_id="e1")
        again = await give(stage, "ask", text="What is the answer?", event_id="e1")
        assert shown.receipt is not None
        assert again.receipt is not None
        assert (shown.text, again.receipt.id) == ("", shown.receipt.id)
        settled = await stage.agent_runtime.inbox.wait_outcome(shown.receipt.id)
        await stage.agent.outbox.drain(5)
        assert (settled.outcome, stage.texts) == (Outcome.ANSWERED, ["Forty-two."])


@pytest.mark.parametrize(("kind", "role"), [(GROUP, Role.ADMIN), (GROUP, Role.OWNER), (DM, Role.MEMBER)])
async def test_an_admin_mutes_a_room_and_anybody_their_own(stage: AgentHarness, kind: ChannelType, role: Role) -> None:
    assert "quiet" in (await give(stage, "mute", kind=kind, role=role)).text
    assert await attendance(stage) is ParticipantState.MUTED
    await give(stage, "unmute", kind=kind, role=role)
    assert await attendance(stage) is ParticipantState.DEFAULT


async def test_a_member_of_a_group_mutes_nothing_and_it_is_written_down(stage: AgentHarness) -> None:
    shown = await give(stage, "mute")
    assert shown.text == "/mute needs the role ADMIN here."
    assert await attendance(stage) is ParticipantState.DEFAULT
    [receipt] = await stage.agent.store.ledger.receipts()
    assert (receipt.outcome, receipt.rule, receipt.reason) == (
        Outcome.IGNORED,
        "command",
        "/mute: it needs the role ADMIN",
    )


async def test_an_admin_chooses_for_a_room_how_readily_the_agent_speaks() -> None:
    def ignore(request: TextRequest) -> str:
        return "<response><action>IGNORE</action></response>"

    async with running_agent(model=ScriptedModel(ignore)) as stage:
        refused = await give(stage, "responsiveness", arguments={"level": "called"})
        assert refused.text == "/responsiveness needs the role ADMIN here."
        assert "here: balanced." in (await give(stage, "responsiveness", role=Role.ADMIN)).text
        await give(stage, "responsiveness", arguments={"level": "called"}, role=Role.ADMIN)
        assert (await stage.send("hello everybody", kind=GROUP)).reason == "Ada answers only when called here"
        assert "here: called." in (await give(stage, "responsiveness", role=Role.ADMIN)).text
        elsewhere = await stage.send("hello everybody", kind=GROUP, room="another room")
        assert elsewhere.rule == "shouldRespond: IGNORE"
        await give(stage, "responsiveness", arguments={"level": "default"}, role=Role.ADMIN)
        assert (await stage.send("hello again, everybody?", kind=GROUP)).rule == "shouldRespond: IGNORE"


async def test_being_alone_makes_nobody_an_owner() -> None:
    async with running_agent(Plugin("ops", commands=[restart])) as stage:
        assert (await give(stage, "restart", kind=DM)).text == "/restart needs the role OWNER here."
        assert (await give(stage, "restart", role=Role.OWNER)).text == "restarting"


async def test_why_is_told_of_ones_own_message_without_the_models_words_or_anothers() -> None:
    def ignore(request: TextRequest) -> str:
        reasoning = "<reasoning>Bob said the code is 1234</reasoning>"
        return f"<response>{reasoning}<action>IGNORE</action></response>"

    async with running_agent(model=ScriptedModel(ignore)) as stage:
        assert "no message of yours" in (await give(stage, "why")).text
        await stage.send("The code is 1234", kind=GROUP, author="Bob")
        assert "no message of yours" in (await give(stage, "why")).text
        told = (await give(stage, "why", author="Bob")).text
        assert told.startswith("Stayed silent: the model found that Ada was not meant.")
        assert "1234" not in told
        assert (await give(stage, "why", role=Role.ADMIN)).text == told


async def test_why_tells_of_a_failure_only_that_there_was_one() -> None:
    def fail(request: TextRequest) -> str:
        raise RuntimeError("https://internal.example/v1 said: key sk-fake-000")

    async with running_agent(model=ScriptedModel(fail)) as stage:
        await stage.send("Hello")
        told = (await give(stage, "why")).text
    assert told.startswith("Failed: ")
    assert "internal" not in told
    assert "sk-fake" not in told


async def test_privacy_names_what_is_kept_for_how_long_and_who_is_shown_it() -> None:
    keeper = Plugin("keeper", privacy_statement=lambda settings: "For how long: a year and a day.")
    async with running_agent(keeper) as stage:
        told = (await give(stage, "privacy")).text
        assert "a year and a day" in told
        assert "/forget-me" in told
        assert f"the model of {stage.model.plugin.name}" in told


@model(ModelType.TEXT_LARGE)
async def elsewhere(agent: Agent, request: TextRequest) -> TextResult:
    return TextResult(model_answer("Hello."))


async def test_privacy_tells_where_models_are_beside_what_is_kept() -> None:
    away = Plugin("away", models=[elsewhere], privacy_statement=lambda settings: "Sent to far.example: all of it.")
    async with running_agent(away) as stage:
        told = (await give(stage, "privacy")).text.splitlines()
    assert "For how long: until I stop." in told
    assert told.index("Sent to far.example: all of it.") > told.index("For how long: until I stop.")


@pytest.mark.failure("L-12")
async def test_somebody_is_forgotten_once_they_have_said_so_twice_and_it_is_written_down(stage: AgentHarness) -> None:
    await stage.send("My secret", author="Alice", kind=GROUP)
    await stage.send("Mine stays", author="Bob", kind=GROUP)
    asked = await give(stage, "forget-me", event_id="first")
    assert "cannot be undone" in asked.text
    assert await give(stage, "forget-me", event_id="first") == asked
    [choice] = asked.choices
    room = make_message("", sent_at=stage.agent.clock()).room
    assert "My secret" in [one.content.text for one in await stage.agent.store.memories.recent(room.id)]
    done = await press(stage, choice.value)
    assert done.text.startswith("Deleted: messages of yours (1), answers to you (1)")
    left = [one.content.text for one in await stage.agent.store.memories.recent(room.id)]
    assert "Mine stays" in left
    assert "My secret" not in left
    entries = await stage.agent.store.logs.logs(kind="command")
    receipt = done.text.rpartition(" ")[2]
    assert entries[0]["body"] == {"command": "forget-me", "deleted": 2, "receipt": receipt}
    assert all(entry["entity_id"] is None for entry in entries)
    assert "You had everything deleted on" in (await give(stage, "privacy")).text


async def test_somebody_is_forgotten_once_in_ten_minutes() -> None:
    clock = ManualClock()
    async with running_agent(clock=clock) as stage:
        await give(stage, "forget-me")
        done = await give(stage, "forget-me")
        again = await give(stage, "forget-me")
        assert "less than ten minutes ago" in again.text
        assert done.text.rpartition(" ")[2] in again.text
        assert "cannot be undone" in (await give(stage, "forget-me", author="Bob")).text
        clock.advance(minutes=11)
        assert "cannot be undone" in (await give(stage, "forget-me")).text


async def test_a_person_is_not_forgotten_twice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate, store = asyncio.Event(), asyncio.Event(), InMemoryStore()
    erase = store.edits.erase_entity

    async def wait(*values: Any) -> ErasureResult:
        begun.set()
        await gate.wait()
        return await erase(*values)

    monkeypatch.setattr(store.edits, "erase_entity", wait)
    async with running_agent(store=store) as stage:
        await give(stage, "forget-me")
        first = asyncio.create_task(give(stage, "forget-me"))
        await begun.wait()
        assert "I am deleting it" in (await give(stage, "forget-me")).text
        await stage.agent_runtime.handle.edits.clear_room(make_message("", sent_at=START).room.id)  # others do not wait
        gate.set()
        assert (await first).text.startswith("Deleted: ")


async def test_what_a_person_may_cost_a_day_is_the_same_after_forget_me_and_a_restart() -> None:
    clock, store = ManualClock(), InMemoryStore()
    settings = {"BUDGET_TOKENS_PER_PERSON": "500"}

    async def say(stage: AgentHarness) -> Receipt:
        return await stage.send("Ada, tell me something", author="Alice", kind=DM)

    rules = []
    for _ in range(3):
        async with running_agent(store=store, clock=clock, settings=settings) as stage:
            while not (rule := (await say(stage)).rule).startswith("BUDGET"):
                assert len(stage.texts) < 20
            rules.append((rule, len(stage.model.requests)))
            await give(stage, "forget-me", kind=DM)
            await give(stage, "forget-me", kind=DM)
            assert (await say(stage)).rule == "BUDGET_TOKENS_PER_PERSON"
        clock.advance(minutes=11)
    assert rules[0][1] > 0
    assert [rule for rule, _ in rules] == ["BUDGET_TOKENS_PER_PERSON"] * 3
    assert [calls for _, calls in rules[1:]] == [0, 0]
    clock.advance(days=1)
    async with running_agent(store=store, clock=clock, settings=settings) as stage:
        assert (await say(stage)).outcome is Outcome.ANSWERED


async def test_how_many_messages_a_person_may_send_is_the_same_after_forget_me() -> None:
    async with running_agent(settings={"MESSAGES_PER_PERSON": "1"}) as stage:
        for _ in range(2):
            assert (await stage.send("Ada, hello", author="Alice", kind=DM)).outcome is Outcome.ANSWERED
        await give(stage, "forget-me", kind=DM)
        await give(stage, "forget-me", kind=DM)
        assert (await stage.send("Ada, hello", author="Alice", kind=DM)).rule == "MESSAGES_PER_PERSON"


async def test_somebody_elses_yes_deletes_nothing(stage: AgentHarness) -> None:
    await stage.send("My secret", author="Alice", kind=GROUP)
    await give(stage, "forget-me", author="Alice")
    assert "once more" in (await give(stage, "forget-me", author="Bob")).text


async def test_being_forgotten_calls_off_the_answer_under_way() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(request: TextRequest) -> str:
        begun.set()
        await gate.wait()
        return model_answer("Your secret is safe.")

    async with running_agent(model=ScriptedModel(slow)) as stage:
        receipt = await stage.submit("My secret", author="Alice")
        await begun.wait()
        await give(stage, "forget-me", kind=DM)
        await give(stage, "forget-me", kind=DM)
        gate.set()
        assert (await stage.agent_runtime.inbox.wait_outcome(receipt.id)).outcome is Outcome.CANCELLED
        await stage.agent.outbox.drain(5)
        assert stage.texts == []
        assert await stage.agent.store.memories.recent(receipt.room_id) == []


class FileAdapter(RecordingAdapter):
    """A platform whose responses to commands can have files."""

    sends_response_files = True


async def test_an_export_is_a_file_in_a_private_chat_only_and_not_twice_in_ten_minutes() -> None:
    async with running_agent(adapter=FileAdapter()) as stage:
        await stage.send("My secret", author="Alice", kind=GROUP)
        await stage.send("Not hers", author="Bob", kind=GROUP)
        refused = await give(stage, "export-me", kind=GROUP)
        assert (refused.text[:12], refused.attachments) == ("Others would", ())
        answer = await give(stage, "export-me", kind=DM)
        again = await give(stage, "export-me", kind=DM)
    [file] = answer.attachments
    with zipfile.ZipFile(io.BytesIO(file.data or b"")) as archive:
        contents = b"".join(archive.read(name) for name in archive.namelist())
    assert b"My secret" in contents
    assert b"Not hers" not in contents
    assert ("ten minutes" in again.text, again.attachments) == (True, ())


async def test_an_export_that_fails_may_be_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*arguments: object, **settings: object) -> None:
        raise OSError("the file could not be written")

    async with running_agent(adapter=FileAdapter()) as stage:
        with monkeypatch.context() as patch:
            patch.setattr(builtin, "write_person_archive", fail)
            with pytest.raises(OSError, match="could not be written"):  # the adapter answers that it failed
                await give(stage, "export-me", kind=DM)
        assert len((await give(stage, "export-me", kind=DM)).attachments) == 1


async def test_two_exports_of_one_person_are_not_written_at_once() -> None:
    async with running_agent(adapter=FileAdapter()) as stage:
        answers = await asyncio.gather(*(give(stage, "export-me", kind=DM, event_id=f"{n}") for n in range(3)))
    assert sum(len(answer.attachments) for answer in answers) == 1


async def test_an_export_that_is_too_large_says_so_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "MAX_EXPORT_BYTES", 100)
    async with running_agent(adapter=FileAdapter()) as stage:
        await stage.send("My secret", author="Alice", kind=DM)
        for _ in range(2):
            answer = await give(stage, "export-me", kind=DM)
            assert ("more than fits" in answer.text, answer.attachments) == (True, ())


async def test_where_responses_have_no_files_an_export_names_the_operator(stage: AgentHarness) -> None:
    answer = await give(stage, "export-me", kind=DM)
    assert ("Ask who runs me" in answer.text, answer.attachments) == (True, ())


@pytest.mark.parametrize("name", ["forget_me", "FORGET-ME", "/forget-me"])
async def test_a_name_is_read_as_platforms_write_it(stage: AgentHarness, name: str) -> None:
    assert "cannot be undone" in (await give(stage, name)).text


async def test_an_unknown_command_is_answered_with_the_nearest(stage: AgentHarness) -> None:
    assert (await give(stage, "mutee")).text == "I do not know /mutee. Did you mean /mute?"
    assert "/help" in (await give(stage, "xyzzy")).text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Alice rolls 6, loud:"),
        ({"arguments": {"sides": 20, "manner": "quiet"}}, "Alice rolls 20, quiet:"),
        ({"text": "20 quiet a lucky one"}, "Alice rolls 20, quiet: a lucky one"),
    ],
)
async def test_arguments_come_by_name_or_in_their_order(given: dict[str, object], said: str) -> None:
    async with running_agent(Plugin("dice", commands=[roll])) as stage:
        assert await give(stage, "roll", **given) == CommandResponse(said, is_ephemeral=False)


@pytest.mark.parametrize("text", ["many", "6 sideways", "99999999999999999999999 \x00"])
async def test_an_argument_that_does_not_fit_is_told_with_what_would(text: str) -> None:
    async with running_agent(Plugin("dice", commands=[roll])) as stage:
        told = (await give(stage, "roll", text=text)).text
    assert told.startswith(("/roll <sides> <manner> <wish>\n", "Alice rolls 99999999999999999999999"))


async def test_a_plugins_fault_stays_with_it_and_its_details_in_the_log() -> None:
    async with running_agent(Plugin("dice", commands=[raise_hell])) as stage:
        told = (await give(stage, "raise-hell")).text
    assert "did not work" in told
    assert "details" not in told


async def test_the_same_event_is_answered_once_also_where_it_comes_twice_at_once() -> None:
    count: list[int] = []

    @command("count", "Count.")
    async def counting(asking: CommandContext) -> str:
        count.append(1)
        await asyncio.sleep(0)
        return str(len(count))

    async with running_agent(Plugin("counting", commands=[counting])) as stage:
        both = await asyncio.gather(*(give(stage, "count", event_id="1") for _ in range(2)))
        assert [one.text for one in both] == ["1", "1"]
        assert (await give(stage, "count", event_id="1")).text == "1"
        assert (await give(stage, "count", event_id="2")).text == "2"


async def test_one_who_gives_too_many_commands_is_told_once_and_passed_over_for_a_minute() -> None:
    now = START
    async with running_agent(clock=lambda: now) as stage:
        assert all([(await give(stage, "help")).text for _ in range(MAX_COMMANDS)])
        assert (await give(stage, "help")).text == user_text("commands.too_many")
        assert [(await give(stage, "help")).text for _ in range(3)] == ["", "", ""]
        assert (await give(stage, "help", author="Bob")).text.startswith("I am")
        now += RATE_WINDOW
        assert (await give(stage, "help")).text.startswith("I am")


async def test_a_secret_in_an_answer_does_not_leave() -> None:
    @command("leak", "Leak.")
    async def leak(asking: CommandContext) -> str:
        return f"it is {asking.agent.settings.get('DICE_TOKEN')}"

    async with running_agent(Plugin("dice", commands=[leak]), settings={"DICE_TOKEN": "fake-token-for-tests"}) as stage:
        assert (await give(stage, "leak")).text == "it is [redacted]"


async def test_no_command_is_taken_in_while_the_bot_stops(stage: AgentHarness) -> None:
    stage.agent_runtime.inbox.close()
    with pytest.raises(InboxClosed):
        await give(stage, "help")


async def test_a_plugin_cannot_take_the_name_of_a_built_in_command() -> None:
    @command("mute", "Mine.")
    async def mine(asking: CommandContext) -> None:
        """Do nothing."""

    with pytest.raises(PluginError, match="command mute of plugin 'dice'"):
        async with running_agent(Plugin("dice", commands=[mine])):
            pass


@pytest.mark.parametrize("name", ["Roll", "roll dice", "-roll", "", "r" * 33, "würfel"])
def test_a_name_that_not_every_platform_takes_is_refused(name: str) -> None:
    with pytest.raises(PluginError, match="lower-case"):

        @command(name, "No.")
        async def handler(asking: CommandContext) -> None:
            """Do nothing."""


@pytest.mark.parametrize("is_cleared", [True, False])
async def test_what_a_turn_has_noted_is_not_stored_after_its_deletion(is_cleared: bool) -> None:
    async with running_agent() as stage:
        receipt = await stage.send("Ada, hello", author="Alice", kind=DM)
        edits = stage.agent_runtime.handle.edits
        await (edits.clear_room(receipt.room_id) if is_cleared else edits.erase_entity(receipt.author_id))
    assert receipt.turn_id is not None  # the agent has stopped: all that was collected is stored
    assert TRACE_KEY not in await stage.agent.store.ledger.steps(receipt.turn_id)
