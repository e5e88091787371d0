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
from bot.plugin_system.components import Command, CommandContext, command, model
from bot.plugin_system.plugin import Plugin
from bot.receipts import TRACE_KEY
from bot.store import InMemoryStore
from bot.testing import AgentHarness, RecordingAdapter, ScriptedModel, make_message, model_answer, running_agent
from bot.turn import Agent
from bot.user_texts import user_text
from tests.clocks import ManualClock
from tests.commands.asking import give, press
from tests.scheduling import START

DM, GROUP = ChannelType.DM, ChannelType.GROUP
BUILT_IN = [
    "ask",
    "stop",
    "why",
    "mute",
    "unmute",
    "take-over",
    "give-back",
    "responsiveness",
    "room",
    "drafts",
    "minors",
    "filter-words",
    "privacy",
    "forget-me",
    "ignore-me",
    "export-me",
    "help",
    "start",
]


@pytest.fixture
async def harness() -> AsyncIterator[AgentHarness]:
    async with running_agent() as harness:
        yield harness


async def test_start_sends_a_greeting_of_the_characters_own_with_the_name_of_the_person() -> None:
    character = Character(name="Ada", greetings=("Ahoy {{user}}!", "Welcome aboard, {{user}}."))
    async with running_agent(character=character) as harness:
        texts = {(await give(harness, "start", author="Bob", kind=DM, event_id=f"{n}")).text for n in range(8)}
    assert texts == {"Ahoy Bob!", "Welcome aboard, Bob."}


@pytest.mark.parametrize(("kind", "text"), [(DM, "Ahoy Bob!"), (GROUP, "Ahoy all, I am Ada!")])
async def test_start_sends_a_greeting_of_groups_where_several_people_are(kind: ChannelType, text: str) -> None:
    character = Character(name="Ada", greetings=("Ahoy {{user}}!",), group_greetings=("Ahoy all, I am {{char}}!",))
    async with running_agent(character=character) as harness:
        assert (await give(harness, "start", author="Bob", kind=kind)).text == text


@pytest.mark.parametrize(
    ("kind", "is_hidden", "is_known"), [(DM, True, True), (GROUP, False, True), (GROUP, True, False)]
)
async def test_a_greeting_that_the_room_sees_is_in_the_prompt_of_the_next_answer(
    kind: ChannelType, is_hidden: bool, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingAdapter, "hides_responses", is_hidden)
    character = Character(name="Ada", greetings=("Ahoy {{user}}! Shall I tell of the storm?",))
    async with running_agent(character=character) as harness:
        assert (await give(harness, "start", kind=kind, event_id="e1")).text == "Ahoy Alice! Shall I tell of the storm?"
        await give(harness, "start", kind=kind, event_id="e1")
        await harness.send("Yes, Ada", kind=kind)
        assert harness.texts == ["Hello."]
        prompt = harness.model.requests[-1].prompt
        assert prompt.count("Shall I tell of the storm?") == is_known


async def test_a_forgotten_persons_greeting_is_deleted() -> None:
    async with running_agent(character=Character(name="Ada", greetings=("Ahoy {{user}}!",))) as harness:
        await give(harness, "start", kind=DM)
        await give(harness, "forget-me", kind=DM)
        await give(harness, "forget-me", kind=DM)
        room = make_message("", sent_at=harness.agent.clock(), kind=DM).room
        assert await harness.agent.store.memories.recent(room.id) == []


async def attendance(harness: AgentHarness) -> ParticipantState:
    room = make_message("", sent_at=harness.agent.clock()).room
    return await harness.agent.store.worlds.participant_state(room.id)


@command("roll", "Roll dice.", ephemeral=False)
async def roll(
    asking: CommandContext,
    sides: Annotated[int, "How many sides"] = 6,
    manner: Literal["loud", "quiet"] = "loud",
    request: str = "",
) -> str:
    """Return what would be rolled."""
    return f"{asking.invocation.author.name} rolls {sides}, {manner}: {request}"


@command("raise-hell", "Fail.")
async def raise_hell(asking: CommandContext) -> None:
    """Fail."""
    raise RuntimeError("the details are for the log")


@command("restart", "Restart.", role=Role.OWNER)
async def restart(asking: CommandContext) -> str:
    """Return a fixed answer."""
    return "restarting"


async def test_every_bot_has_the_same_commands_and_then_those_of_its_plugins() -> None:
    async with running_agent(Plugin("dice", commands=[roll])) as harness:
        specs = harness.agent_runtime.handle.commands
        assert [spec.name for spec in specs] == [
            *BUILT_IN,
            "what-do-you-know-about-me",
            "share-my-facts",
            "summary",
            "roll",
        ]
        assert specs[-1].plugin == "dice"
        assert specs[-1].parameters["properties"]["manner"]["enum"] == ["loud", "quiet"]
        listed = (await give(harness, "help")).text
    assert "/roll [sides] [manner] [request]  Roll dice." in listed
    assert "/ask question" in listed


async def test_what_is_asked_is_a_message_like_any_other_and_answered_once() -> None:
    async with running_agent(model=ScriptedModel(model_answer("Forty-two."))) as harness:
        shown = await give(harness, "ask", text="What is the answer?", event_id="e1")
        again = await give(harness, "ask", text="What is the answer?", event_id="e1")
        assert shown.receipt is not None
        assert again.receipt is not None
        assert (shown.text, again.receipt.id) == ("", shown.receipt.id)
        settled = await harness.agent_runtime.inbox.wait_outcome(shown.receipt.id)
        await harness.agent.outbox.drain(5)
        assert (settled.outcome, harness.texts) == (Outcome.ANSWERED, ["Forty-two."])


@pytest.mark.parametrize(("kind", "role"), [(GROUP, Role.ADMIN), (GROUP, Role.OWNER), (DM, Role.MEMBER)])
async def test_an_admin_mutes_a_room_and_anybody_their_own(
    harness: AgentHarness, kind: ChannelType, role: Role
) -> None:
    assert "quiet" in (await give(harness, "mute", kind=kind, role=role)).text
    assert await attendance(harness) is ParticipantState.MUTED
    await give(harness, "unmute", kind=kind, role=role)
    assert await attendance(harness) is ParticipantState.DEFAULT


async def test_a_member_of_a_group_mutes_nothing_and_it_is_written_down(harness: AgentHarness) -> None:
    shown = await give(harness, "mute")
    assert shown.text == "Here, only people with the role ADMIN can use /mute."
    assert await attendance(harness) is ParticipantState.DEFAULT
    [receipt] = await harness.agent.store.ledger.receipts()
    assert (receipt.outcome, receipt.rule, receipt.reason) == (
        Outcome.IGNORED,
        "command",
        "/mute: it needs the role ADMIN",
    )


async def test_an_admin_chooses_for_a_room_how_readily_the_agent_speaks() -> None:
    def ignore(request: TextRequest) -> str:
        return "<response><action>IGNORE</action></response>"

    async with running_agent(model=ScriptedModel(ignore)) as harness:
        refused = await give(harness, "responsiveness", arguments={"level": "called"})
        assert refused.text == "Here, only people with the role ADMIN can use /responsiveness."
        assert "here: balanced." in (await give(harness, "responsiveness", role=Role.ADMIN)).text
        await give(harness, "responsiveness", arguments={"level": "called"}, role=Role.ADMIN)
        assert (await harness.send("hello everybody", kind=GROUP)).reason == "Ada answers here only when called"
        assert "here: called." in (await give(harness, "responsiveness", role=Role.ADMIN)).text
        elsewhere = await harness.send("hello everybody", kind=GROUP, room="another room")
        assert elsewhere.rule == "shouldRespond: IGNORE"
        await give(harness, "responsiveness", arguments={"level": "default"}, role=Role.ADMIN)
        assert (await harness.send("hello again, everybody?", kind=GROUP)).rule == "shouldRespond: IGNORE"


async def test_start_begins_with_the_notice_which_is_no_part_of_the_greeting() -> None:
    async with running_agent(settings={"AI_NOTICE": "first"}) as harness:
        response = await give(harness, "start", kind=DM)
        notice, greeting = response.text.split("\n\n")
        assert notice == "Ada is an AI character. No human writes these messages."
        [room] = await harness.agent.store.worlds.rooms()
        recent = await harness.agent.store.memories.recent(room.id)
        assert [memory.content.text for memory in recent] == ["/start", greeting]


async def test_an_admin_lists_words_that_are_neither_read_nor_said_in_a_room() -> None:
    async with running_agent() as harness:
        words = {"words": "badword, two words"}
        refused = await give(harness, "filter-words", arguments=words)
        assert refused.text == "Here, only people with the role ADMIN can use /filter-words."
        await give(harness, "filter-words", arguments=words, role=Role.ADMIN)
        shown = await give(harness, "filter-words", role=Role.ADMIN)
        assert shown.text == "Words that I neither read nor write here: badword, two words."
        assert (await harness.send("Ada, badword", kind=GROUP)).rule == "filter"
        assert (await harness.send("Ada, badword", kind=GROUP, room="another room")).outcome is Outcome.ANSWERED
        await give(harness, "filter-words", arguments={"words": "off"}, role=Role.ADMIN)
        assert (await harness.send("Ada, badword", kind=GROUP)).outcome is Outcome.ANSWERED
        assert "1000" in (await give(harness, "filter-words", arguments={"words": "x" * 1001}, role=Role.ADMIN)).text


async def test_an_admin_marks_a_room_of_minors() -> None:
    async with running_agent() as harness:
        assert (await give(harness, "minors")).text == "Here, only people with the role ADMIN can use /minors."
        assert "every hour" in (await give(harness, "minors", role=Role.ADMIN)).text
        await harness.send("Ada, hello", kind=GROUP)
        assert (await give(harness, "minors", arguments={"mark": "off"}, role=Role.ADMIN)).text.startswith(
            "The rules for minors no longer"
        )
        await harness.send("Ada, hello", kind=GROUP, author="Bob")
    assert [part.kind.value for part in harness.adapter.sent] == ["notice", "reply", "reply"]


async def test_being_alone_makes_no_person_an_owner() -> None:
    async with running_agent(Plugin("ops", commands=[restart])) as harness:
        assert (
            await give(harness, "restart", kind=DM)
        ).text == "Here, only people with the role OWNER can use /restart."
        assert (await give(harness, "restart", role=Role.OWNER)).text == "restarting"


async def test_why_explains_ones_own_message_without_the_models_words_or_anothers() -> None:
    def ignore(request: TextRequest) -> str:
        reasoning = "<reasoning>Bob said the code is 1234</reasoning>"
        return f"<response>{reasoning}<action>IGNORE</action></response>"

    async with running_agent(model=ScriptedModel(ignore)) as harness:
        assert "no message from you" in (await give(harness, "why")).text
        await harness.send("The code is 1234", kind=GROUP, author="Bob")
        assert "no message from you" in (await give(harness, "why")).text
        answer = (await give(harness, "why", author="Bob")).text
        assert answer.startswith("Stayed silent: the model decided that Ada was not addressed.")
        assert "1234" not in answer
        assert (await give(harness, "why", role=Role.ADMIN)).text == answer


async def test_why_says_of_a_failure_only_that_it_occurred() -> None:
    def fail(request: TextRequest) -> str:
        raise RuntimeError("https://internal.example/v1 said: key sk-fake-000")

    async with running_agent(model=ScriptedModel(fail)) as harness:
        await harness.send("Hello")
        answer = (await give(harness, "why")).text
    assert answer.startswith("Failed: ")
    assert "internal" not in answer
    assert "sk-fake" not in answer


async def test_privacy_names_what_is_kept_for_how_long_and_who_is_shown_it() -> None:
    keeper = Plugin("keeper", privacy_statement=lambda settings: "For how long: a year and a day.")
    async with running_agent(keeper) as harness:
        answer = (await give(harness, "privacy")).text
        assert "a year and a day" in answer
        assert "/forget-me" in answer
        assert f"the model of {harness.model.plugin.name}" in answer


@model(ModelType.TEXT_LARGE)
async def elsewhere(agent: Agent, request: TextRequest) -> TextResult:
    return TextResult(model_answer("Hello."))


async def test_privacy_shows_where_models_are_and_what_is_kept() -> None:
    away = Plugin("away", models=[elsewhere], privacy_statement=lambda settings: "Sent to far.example: all of it.")
    async with running_agent(away) as harness:
        answer = (await give(harness, "privacy")).text.splitlines()
    assert "For how long: until I am stopped." in answer
    assert answer.index("Sent to far.example: all of it.") > answer.index("For how long: until I am stopped.")


@pytest.mark.failure("L-12")
async def test_a_person_is_forgotten_once_they_have_said_so_twice_and_it_is_written_down(harness: AgentHarness) -> None:
    await harness.send("My secret", author="Alice", kind=GROUP)
    await harness.send("Mine stays", author="Bob", kind=GROUP)
    asked = await give(harness, "forget-me", event_id="first")
    assert "cannot be undone" in asked.text
    assert await give(harness, "forget-me", event_id="first") == asked
    [choice] = asked.choices
    room = make_message("", sent_at=harness.agent.clock()).room
    assert "My secret" in [answer.content.text for answer in await harness.agent.store.memories.recent(room.id)]
    done = await press(harness, choice.value)
    assert done.text.startswith("Deleted: your messages (1), my answers to you (1)")
    left = [answer.content.text for answer in await harness.agent.store.memories.recent(room.id)]
    assert "Mine stays" in left
    assert "My secret" not in left
    entries = await harness.agent.store.logs.logs(kind="command")
    receipt = done.text.rpartition(" ")[2]
    assert entries[0]["body"] == {"command": "forget-me", "deleted": 2, "receipt": receipt}
    assert all(entry["entity_id"] is None for entry in entries)
    assert "You deleted all your data on" in (await give(harness, "privacy")).text


async def test_a_person_is_forgotten_once_in_ten_minutes() -> None:
    clock = ManualClock()
    async with running_agent(clock=clock) as harness:
        await give(harness, "forget-me")
        done = await give(harness, "forget-me")
        again = await give(harness, "forget-me")
        assert "less than ten minutes ago" in again.text
        assert done.text.rpartition(" ")[2] in again.text
        assert "cannot be undone" in (await give(harness, "forget-me", author="Bob")).text
        clock.advance(minutes=11)
        assert "cannot be undone" in (await give(harness, "forget-me")).text


async def test_a_person_is_not_forgotten_twice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate, store = asyncio.Event(), asyncio.Event(), InMemoryStore()
    erase = store.edits.erase_entity

    async def wait(*values: Any) -> ErasureResult:
        begun.set()
        await gate.wait()
        return await erase(*values)

    monkeypatch.setattr(store.edits, "erase_entity", wait)
    async with running_agent(store=store) as harness:
        await give(harness, "forget-me")
        first = asyncio.create_task(give(harness, "forget-me"))
        await begun.wait()
        assert "The deletion is running" in (await give(harness, "forget-me")).text
        await harness.agent_runtime.handle.edits.clear_room(
            make_message("", sent_at=START).room.id
        )  # others do not wait
        gate.set()
        assert (await first).text.startswith("Deleted: ")


async def test_what_a_person_may_cost_a_day_is_the_same_after_forget_me_and_a_restart() -> None:
    clock, store = ManualClock(), InMemoryStore()
    settings = {"BUDGET_TOKENS_PER_PERSON": "500"}

    async def say(harness: AgentHarness) -> Receipt:
        return await harness.send("Ada, tell me something", author="Alice", kind=DM)

    rules = []
    for _ in range(3):
        async with running_agent(store=store, clock=clock, settings=settings) as harness:
            while not (rule := (await say(harness)).rule).startswith("BUDGET"):
                assert len(harness.texts) < 20
            rules.append((rule, len(harness.model.requests)))
            await give(harness, "forget-me", kind=DM)
            await give(harness, "forget-me", kind=DM)
            assert (await say(harness)).rule == "BUDGET_TOKENS_PER_PERSON"
        clock.advance(minutes=11)
    assert rules[0][1] > 0
    assert [rule for rule, _ in rules] == ["BUDGET_TOKENS_PER_PERSON"] * 3
    assert [calls for _, calls in rules[1:]] == [0, 0]
    clock.advance(days=1)
    async with running_agent(store=store, clock=clock, settings=settings) as harness:
        assert (await say(harness)).outcome is Outcome.ANSWERED


async def test_how_many_messages_a_person_may_send_is_the_same_after_forget_me() -> None:
    async with running_agent(settings={"MESSAGES_PER_PERSON": "1"}) as harness:
        for _ in range(2):
            assert (await harness.send("Ada, hello", author="Alice", kind=DM)).outcome is Outcome.ANSWERED
        await give(harness, "forget-me", kind=DM)
        await give(harness, "forget-me", kind=DM)
        assert (await harness.send("Ada, hello", author="Alice", kind=DM)).rule == "MESSAGES_PER_PERSON"


async def test_another_persons_yes_deletes_nothing(harness: AgentHarness) -> None:
    await harness.send("My secret", author="Alice", kind=GROUP)
    await give(harness, "forget-me", author="Alice")
    assert "again within" in (await give(harness, "forget-me", author="Bob")).text


async def test_being_forgotten_calls_off_the_answer_under_way() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(request: TextRequest) -> str:
        begun.set()
        await gate.wait()
        return model_answer("Your secret is safe.")

    async with running_agent(model=ScriptedModel(slow)) as harness:
        receipt = await harness.submit("My secret", author="Alice")
        await begun.wait()
        await give(harness, "forget-me", kind=DM)
        await give(harness, "forget-me", kind=DM)
        gate.set()
        assert (await harness.agent_runtime.inbox.wait_outcome(receipt.id)).outcome is Outcome.CANCELLED
        await harness.agent.outbox.drain(5)
        assert harness.texts == []
        assert await harness.agent.store.memories.recent(receipt.room_id) == []


class FileAdapter(RecordingAdapter):
    """A platform whose responses to commands can have files."""

    sends_response_files = True


async def test_an_export_is_a_file_in_a_private_chat_only_and_not_twice_in_ten_minutes() -> None:
    async with running_agent(adapter=FileAdapter()) as harness:
        await harness.send("My secret", author="Alice", kind=GROUP)
        await harness.send("Not hers", author="Bob", kind=GROUP)
        refused = await give(harness, "export-me", kind=GROUP)
        assert (refused.text[:12], refused.attachments) == ("Others would", ())
        answer = await give(harness, "export-me", kind=DM)
        again = await give(harness, "export-me", kind=DM)
    [file] = answer.attachments
    with zipfile.ZipFile(io.BytesIO(file.data or b"")) as archive:
        contents = b"".join(archive.read(name) for name in archive.namelist())
    assert b"My secret" in contents
    assert b"Not hers" not in contents
    assert ("ten minutes" in again.text, again.attachments) == (True, ())


async def test_an_export_that_fails_may_be_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*arguments: object, **settings: object) -> None:
        raise OSError("the file could not be written")

    async with running_agent(adapter=FileAdapter()) as harness:
        with monkeypatch.context() as patch:
            patch.setattr(builtin, "write_person_archive", fail)
            with pytest.raises(OSError, match="could not be written"):  # the adapter answers that it failed
                await give(harness, "export-me", kind=DM)
        assert len((await give(harness, "export-me", kind=DM)).attachments) == 1


async def test_two_exports_of_the_same_person_are_not_written_at_once() -> None:
    async with running_agent(adapter=FileAdapter()) as harness:
        answers = await asyncio.gather(*(give(harness, "export-me", kind=DM, event_id=f"{n}") for n in range(3)))
    assert sum(len(answer.attachments) for answer in answers) == 1


async def test_an_export_that_is_too_large_says_so_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "MAX_EXPORT_BYTES", 100)
    async with running_agent(adapter=FileAdapter()) as harness:
        await harness.send("My secret", author="Alice", kind=DM)
        for _ in range(2):
            answer = await give(harness, "export-me", kind=DM)
            assert ("does not fit" in answer.text, answer.attachments) == (True, ())


async def test_where_responses_have_no_files_an_export_names_the_operator(harness: AgentHarness) -> None:
    answer = await give(harness, "export-me", kind=DM)
    assert ("Ask my operator" in answer.text, answer.attachments) == (True, ())


@pytest.mark.parametrize("name", ["forget_me", "FORGET-ME", "/forget-me"])
async def test_a_name_is_read_as_platforms_write_it(harness: AgentHarness, name: str) -> None:
    assert "cannot be undone" in (await give(harness, name)).text


async def test_an_unknown_command_is_answered_with_the_nearest(harness: AgentHarness) -> None:
    assert (await give(harness, "mutee")).text == "There is no command /mutee. Did you mean /mute?"
    assert "/help" in (await give(harness, "xyzzy")).text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "Alice rolls 6, loud:"),
        ({"arguments": {"sides": 20, "manner": "quiet"}}, "Alice rolls 20, quiet:"),
        ({"text": "20 quiet a lucky one"}, "Alice rolls 20, quiet: a lucky one"),
        ({"text": "20"}, "Alice rolls 20, loud:"),
        ({"text": ' 20  quiet  "a  lucky" one '}, 'Alice rolls 20, quiet: "a  lucky" one'),
    ],
)
async def test_arguments_come_by_name_or_in_their_order(given: dict[str, object], expected: str) -> None:
    async with running_agent(Plugin("dice", commands=[roll])) as harness:
        assert await give(harness, "roll", **given) == CommandResponse(expected, is_ephemeral=False)


@pytest.mark.parametrize("text", ["many", "6 sideways", "99999999999999999999999 \x00"])
async def test_an_argument_that_does_not_fit_is_reported_with_what_would(text: str) -> None:
    async with running_agent(Plugin("dice", commands=[roll])) as harness:
        answer = (await give(harness, "roll", text=text)).text
    assert answer.startswith(("/roll [sides] [manner] [request]\n", "Alice rolls 99999999999999999999999"))


@command("count", "Count.")
async def count(asking: CommandContext) -> Any:
    """Return a number, which is no response."""
    return 42


@command("count-more", "Count more.")
async def count_more(asking: CommandContext) -> Any:
    """Return a response with a number as text."""
    return CommandResponse(42)  # type: ignore[arg-type]


@pytest.mark.parametrize("faulty", [raise_hell, count, count_more], ids=lambda item: item.spec.name)
async def test_a_plugins_fault_stays_with_it_and_its_details_in_the_log(
    faulty: Command[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with running_agent(Plugin("dice", commands=[faulty])) as harness:
        answer = (await give(harness, faulty.spec.name)).text
    assert "did not work" in answer
    assert "details" not in answer
    assert f"command {faulty.spec.name} failed: " in caplog.text


async def test_the_same_event_is_answered_once_also_where_it_comes_twice_at_once() -> None:
    count: list[int] = []

    @command("count", "Count.")
    async def counting(asking: CommandContext) -> str:
        count.append(1)
        await asyncio.sleep(0)
        return str(len(count))

    async with running_agent(Plugin("counting", commands=[counting])) as harness:
        both = await asyncio.gather(*(give(harness, "count", event_id="1") for _ in range(2)))
        assert [answer.text for answer in both] == ["1", "1"]
        assert (await give(harness, "count", event_id="1")).text == "1"
        assert (await give(harness, "count", event_id="2")).text == "2"


async def test_a_person_who_gives_too_many_commands_is_notified_once_and_passed_over_for_a_minute() -> None:
    now = START
    async with running_agent(clock=lambda: now) as harness:
        assert all([(await give(harness, "help")).text for _ in range(MAX_COMMANDS)])
        assert (await give(harness, "help")).text == user_text("commands.too_many")
        assert [(await give(harness, "help")).text for _ in range(3)] == ["", "", ""]
        assert (await give(harness, "help", author="Bob")).text.startswith("I am")
        now += RATE_WINDOW
        assert (await give(harness, "help")).text.startswith("I am")


async def test_a_secret_in_an_answer_does_not_leave() -> None:
    @command("leak", "Leak.")
    async def leak(asking: CommandContext) -> str:
        return f"it is {asking.agent.settings.get('DICE_TOKEN')}"

    async with running_agent(
        Plugin("dice", commands=[leak]), settings={"DICE_TOKEN": "fake-token-for-tests"}
    ) as harness:
        assert (await give(harness, "leak")).text == "it is [redacted]"


async def test_no_command_is_taken_in_while_the_bot_stops(harness: AgentHarness) -> None:
    harness.agent_runtime.inbox.close()
    with pytest.raises(InboxClosed):
        await give(harness, "help")


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
    async with running_agent() as harness:
        receipt = await harness.send("Ada, hello", author="Alice", kind=DM)
        edits = harness.agent_runtime.handle.edits
        await (edits.clear_room(receipt.room_id) if is_cleared else edits.erase_entity(receipt.author_id))
    assert receipt.turn_id is not None  # the agent has stopped: all that was collected is stored
    assert TRACE_KEY not in await harness.agent.store.ledger.steps(receipt.turn_id)
