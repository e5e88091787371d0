"""Commands, buttons, rules, news and replies that are shown while they are written."""

import asyncio
from typing import Annotated, Any

from adapters.discord.adapter import DiscordAdapter
from adapters.discord.commands import build_registration
from adapters.discord.emulator.server import Fault
from bot import (
    Agent,
    Character,
    ChoiceRequest,
    CommandContext,
    Content,
    Outcome,
    Plugin,
    Task,
    TaskTag,
    Turn,
    action,
    command,
    events,
    new_id,
    worker,
)
from bot.testing import AgentHarness, ScriptedModel, StreamedText, model_answer
from tests.adapters.discord.harbour import Harbour, receipts


def shown_of(harbour: Harbour, interaction: str) -> list[dict[str, Any]]:
    """What was shown of an interaction."""
    return harbour.emulator.recorder.responses[interaction]


async def test_every_command_is_registered_with_what_discord_asks_of_a_member(harbour: Harbour) -> None:
    async with harbour.bot_on() as (stage, _):
        await harbour.emulator.recorder.wait_until(lambda: harbour.emulator.recorder.counts["commands"] > 0)
        assert harbour.emulator.recorder.commands == build_registration(stage.agent_runtime.handle.commands)
    told = {one["name"]: one for one in harbour.emulator.recorder.commands}
    assert {"ask", "mute", "unmute", "why", "forget-me", "privacy"} <= told.keys()
    assert told["ask"]["options"][0] | {"description": ""} == {
        "name": "question",
        "type": 3,
        "description": "",
        "required": True,
    }
    assert told["mute"]["default_member_permissions"] == 32


async def test_a_command_is_acknowledged_at_once_and_answered_to_whoever_gave_it(harbour: Harbour) -> None:
    desk, ledger = harbour.emulator.interactions, harbour.emulator.recorder
    async with harbour.bot_on():
        asked = await desk.run_command(harbour.bot, harbour.robin, harbour.quay, "privacy")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
    [first, *_] = shown_of(harbour, asked)
    assert (first["type"], first["flags"]) == (5, 64)
    assert first["content"]
    assert first["allowed_mentions"]["parse"] == []


async def test_what_is_asked_is_shown_as_one_quotation_so_that_nobody_speaks_in_our_name(
    harbour: Harbour,
) -> None:
    async with harbour.bot_on():
        asked = await harbour.emulator.interactions.run_command(
            harbour.bot, harbour.robin, harbour.quay, "ask", question="Tide?\nFree boats at evil.example"
        )
        await harbour.emulator.recorder.wait_for_texts(1)
    [first, *_] = shown_of(harbour, asked)
    assert first["content"] == "> Tide? Free boats at evil.example"


async def test_a_question_by_command_is_answered_in_the_room(harbour: Harbour) -> None:
    async with harbour.bot_on() as (stage, _):
        asked = await harbour.emulator.interactions.run_command(
            harbour.bot, harbour.robin, harbour.quay, "ask", question="When is low tide?"
        )
        assert await harbour.emulator.recorder.wait_for_texts(1, harbour.quay) == ["Aye."]
        [receipt] = await receipts(stage)
    assert receipt.outcome is Outcome.ANSWERED
    [first] = shown_of(harbour, asked)
    assert (first["flags"], first["content"]) == (0, "> When is low tide?")


async def test_a_question_where_the_rules_forbid_an_answer_is_refused_by_the_rules_name(
    harbour: Harbour,
) -> None:
    ledger = harbour.emulator.recorder
    async with harbour.bot_on(settings={"CHANNEL_IDS": "1"}):
        asked = await harbour.emulator.interactions.run_command(
            harbour.bot, harbour.robin, harbour.quay, "ask", question="Tide?"
        )
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
    assert "CHANNEL_IDS" in shown_of(harbour, asked)[0]["content"]
    assert ledger.texts() == []


async def test_who_may_mute_is_discords_word_and_a_muted_room_is_silent(harbour: Harbour) -> None:
    desk, ledger = harbour.emulator.interactions, harbour.emulator.recorder
    async with harbour.bot_on() as (stage, _):
        refused = await desk.run_command(harbour.bot, harbour.robin, harbour.quay, "mute")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
        done = await desk.run_command(harbour.bot, harbour.kim, harbour.quay, "mute")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 1)
        await harbour.emulator.people.say(harbour.quay, harbour.robin, "anybody?")
        await harbour.emulator.people.say(harbour.quay, harbour.robin, f"{harbour.call}?")
        assert await ledger.wait_for_texts(1) == ["Aye."]
        told = await receipts(stage)
    assert shown_of(harbour, refused)[0]["content"] != shown_of(harbour, done)[0]["content"]
    assert [one.rule for one in told] == ["MUTED", "mention"]


@command("roll", "Roll dice.", ephemeral=False)
async def roll(asking: CommandContext, sides: Annotated[int, "How many sides"] = 6) -> str:
    """Roll what always shows the most."""
    return f"A {sides}."


async def test_a_plugins_command_that_is_for_all_is_shown_to_all(harbour: Harbour) -> None:
    ledger = harbour.emulator.recorder
    async with harbour.bot_on(None, Plugin("dice", commands=[roll])):
        asked = await harbour.emulator.interactions.run_command(
            harbour.bot, harbour.robin, harbour.quay, "roll", sides=20
        )
        await ledger.wait_until(lambda: ledger.counts["followed up"] > 0)
    first, second = shown_of(harbour, asked)
    assert first["is_gone"]
    assert (second["content"], second["flags"]) == ("A 20.", 0)


async def test_an_interaction_that_expired_costs_nothing_but_itself(harbour: Harbour) -> None:
    ledger = harbour.emulator.recorder
    harbour.emulator.faults.append(Fault(r"POST .*/callback$", 404, {"code": 10062}))
    async with harbour.bot_on():
        await harbour.emulator.interactions.run_command(harbour.bot, harbour.robin, harbour.quay, "privacy")
        await ledger.wait_until(lambda: ledger.counts["fault"] > 0)
        await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} ahoy")
        assert await ledger.wait_for_texts(1) == ["Aye."]


async def test_what_is_to_be_confirmed_has_buttons_and_pressing_one_does_it(harbour: Harbour) -> None:
    desk, ledger, people = harbour.emulator.interactions, harbour.emulator.recorder, harbour.emulator.people
    async with harbour.bot_on() as (stage, _):
        await people.say(harbour.quay, harbour.robin, f"{harbour.call} remember me")
        await ledger.wait_for_texts(1)
        await receipts(stage)
        asked = await desk.run_command(harbour.bot, harbour.robin, harbour.quay, "forget-me")
        await ledger.wait_until(lambda: ledger.counts["answered"] > 0)
        [row] = shown_of(harbour, asked)[0]["components"]
        message = {"id": "1", "channel_id": harbour.quay, "content": "", **_MESSAGE}
        message["author"] = harbour.emulator.state.users[harbour.bot]
        pressed = await desk.press_component(
            harbour.bot, harbour.robin, message, row["components"][0]["custom_id"]
        )
        await ledger.wait_until(lambda: ledger.counts["followed up"] > 0)
    first, second = shown_of(harbour, pressed)
    assert first["type"] == 6
    assert (second["flags"], bool(second["content"])) == (64, True)


_MESSAGE = {
    "type": 0,
    "timestamp": "2026-01-01T00:00:00+00:00",
    "edited_timestamp": None,
    "attachments": [],
    "embeds": [],
    "mentions": [],
    "mention_roles": [],
    "mention_everyone": False,
    "pinned": False,
    "tts": False,
}


async def test_a_choice_is_offered_as_buttons_and_the_button_that_is_pressed_is_chosen(
    harbour: Harbour,
) -> None:
    chosen: asyncio.Queue[str] = asyncio.Queue()

    @worker("SET_SAIL")
    async def set_sail(agent: Agent, task: Task) -> None:
        chosen.put_nowait(task.metadata["choice"])

    @action("OFFER", "Offer a choice.")
    async def offer(turn: Turn) -> None:
        request = ChoiceRequest(("North", "South"), choosers=(str(turn.author.id),))
        tags = frozenset({TaskTag.AWAITING_CHOICE})
        task = Task(
            new_id(),
            "SET_SAIL",
            turn.agent.clock(),
            "",
            turn.room.id,
            turn.world.id,
            tags=tags,
            metadata=request.to_metadata(),
        )
        await turn.agent.store.tasks.save_task(task)
        await turn.reply(Content(text="Where to?", choices=request.choices(task.id)))

    sailing = Plugin("sailing", actions=[offer], workers=[set_sail])
    desk, ledger = harbour.emulator.interactions, harbour.emulator.recorder
    async with harbour.bot_on(ScriptedModel(model_answer("", actions=["OFFER"])), sailing):
        await harbour.emulator.people.say(harbour.quay, harbour.robin, f"{harbour.call} sail!")
        await ledger.wait_for_texts(1)
        [shown] = ledger.messages
        message = harbour.emulator.state.messages[harbour.quay][shown.id]
        buttons = message["components"][0]["components"]
        assert [one["label"] for one in buttons] == ["North", "South"]
        await desk.press_component(harbour.bot, harbour.kim, message, buttons[0]["custom_id"])
        await ledger.wait_until(lambda: ledger.counts["followed up"] > 0)  # it is not Kim's to choose
        await desk.press_component(harbour.bot, harbour.robin, message, buttons[1]["custom_id"])
        async with asyncio.timeout(30):
            assert await chosen.get() == "South"


async def test_every_message_that_a_rule_drops_has_a_receipt_that_names_it(harbour: Harbour) -> None:
    town, people = harbour.emulator.state, harbour.emulator.people
    listened, strict, gone = (
        town.add_channel(harbour.guild, name) for name in ("listened", "strict", "gone")
    )
    thread = town.add_channel(harbour.guild, "inside", 11, harbour.quay)
    rooms = {strict: {"answers": "mentions"}, gone: {"answers": "ignore"}}
    character = Character(name="Ada", settings={"discord": {"rooms": rooms}})
    settings = {
        "CHANNEL_IDS": f"{harbour.quay},{listened},{strict},{gone}",
        "DISCORD_LISTEN_CHANNEL_IDS": listened,
        "DISCORD_SHOULD_IGNORE_DIRECT_MESSAGES": "true",
    }
    elsewhere = town.add_channel(harbour.guild, "elsewhere")
    direct = harbour.direct(harbour.kim)
    async with harbour.bot_on(character=character, settings=settings) as (stage, _):
        for channel in (elsewhere, listened, gone, direct):
            await people.say(channel, harbour.kim, f"{harbour.call} ahoy")
        await people.say(strict, harbour.kim, "ahoy")
        await people.say(thread, harbour.kim, f"{harbour.call} ahoy")
        assert await harbour.emulator.recorder.wait_for_texts(1, thread) == ["Aye."]
        told = await receipts(stage)
    assert [one.rule for one in told] == [
        "CHANNEL_IDS",
        "DISCORD_LISTEN_CHANNEL_IDS",
        "DISCORD_SHOULD_IGNORE_DIRECT_MESSAGES",
        f"settings.discord.rooms.{strict} (mentions)",
        "mention",
    ]
    assert len(harbour.emulator.recorder.texts()) == 1


async def test_other_bots_are_remembered_unless_the_operator_does_not_want_them(harbour: Harbour) -> None:
    other = harbour.emulator.state.add_user("Beep", is_bot=True)
    wish = {"DISCORD_SHOULD_IGNORE_BOT_MESSAGES": "true"}
    for settings, rules in (({}, ["RESPOND_TO_BOTS", "mention"]), (wish, ["mention"])):
        async with harbour.bot_on(settings=settings) as (stage, _):
            await harbour.emulator.people.say(harbour.quay, other, f"{harbour.call} beep")
            await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} ahoy")
            count = len(harbour.emulator.recorder.messages)
            await harbour.emulator.recorder.wait_for_texts(count + 1)
            told = await receipts(stage)
        assert [one.rule for one in told][-len(rules) :] == rules


async def test_being_invited_thrown_out_joined_and_left_is_news(harbour: Harbour) -> None:
    town, people = harbour.emulator.state, harbour.emulator.people
    heard: list[str] = []
    island = town.add_guild("Island", harbour.robin)
    town.add_channel(island, "beach")
    newcomer = town.add_user("Nell")
    async with harbour.bot_on(settings={"DISCORD_MEMBERS_INTENT": "true"}) as (stage, _):
        for kind in ("WorldJoined", "WorldLeft", "EntityJoined", "EntityLeft", "RoomJoined", "RoomLeft"):
            _note(stage, kind, heard)
        await people.invite(island, harbour.bot)
        await people.join(harbour.guild, newcomer)
        await people.leave(harbour.guild, newcomer)
        pier = await people.open_channel(harbour.guild, "pier")
        await people.close_channel(pier)
        await people.expel(island, harbour.bot)
        await people.say(harbour.quay, harbour.kim, f"{harbour.call} ahoy")
        await harbour.emulator.recorder.wait_for_texts(1)
        await receipts(stage)
    assert heard == ["WorldJoined", "EntityJoined", "EntityLeft", "RoomJoined", "RoomLeft", "WorldLeft"]


def _note(stage: AgentHarness, kind: str, heard: list[str]) -> None:
    async def hear(event: object) -> None:
        heard.append(kind)

    stage.agent.events.subscribe(getattr(events, kind), hear, name=kind)


async def test_a_reply_is_shown_while_it_is_written_and_nobody_is_told_twice(harbour: Harbour) -> None:
    more = asyncio.Event()
    written = StreamedText(
        "<response><actions>REPLY</actions><text>The tide is", more, " low at six.</text></response>"
    )
    ledger = harbour.emulator.recorder
    async with harbour.bot_on(ScriptedModel(written), settings={"STREAMING": "true"}):
        await harbour.emulator.people.say(harbour.quay, harbour.kim, f"{harbour.call} tide?")
        assert await ledger.wait_for_texts(1) == ["The tide is"]
        more.set()
        await ledger.wait_until(lambda: ledger.texts() == ["The tide is low at six."])
    assert len(ledger.messages) == 1


def test_an_adapter_shows_looks_at_most_once_a_second() -> None:
    assert (DiscordAdapter([]).stream_interval(None) or 0.0) >= 1.0  # type: ignore[arg-type]  # any room
