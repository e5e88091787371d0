"""From a Discord event to the reply, with the real library and the emulator."""

import asyncio
import re
from functools import partial
from itertools import product

import pytest

from adapters.discord.emulator.state import FORUM, THREAD, VOICE
from bot import (
    Agent,
    Attachment,
    ChannelType,
    Character,
    Content,
    Entity,
    MediaKind,
    MemoryKind,
    Outcome,
    Plugin,
    Role,
    Turn,
    action,
    derived_id,
    model,
)
from bot.domain.character import ContentRating
from bot.domain.ledger import Rule
from bot.events import MessageReceived
from bot.models import ModelType, Purpose, TextRequest, TextResult, TranscriptionRequest, Usage
from bot.pipeline import process_message
from bot.pipeline.turn_order import MAX_PAUSE_SECONDS
from bot.platform import Quotation
from bot.testing import AgentHarness, ScriptedModel, model_answer
from plugins.bootstrap import plugin as bootstrap
from tests.adapters.discord.server import EmulatedServer, outcomes, receipts
from tests.bursts import LINES, SlowModel
from tests.plugins.bootstrap.obeying import Obedient
from tests.remembering import SETTINGS, RememberingModel, check_memory

SILENCE = "<response><action>IGNORE</action><reasoning>not for me</reasoning></response>"


def talkative(text: str = "Aye.") -> ScriptedModel:
    """A model that ignores unaddressed messages."""

    def write(request: TextRequest) -> str:
        if request.purpose is Purpose.REFLECTION:
            return ""
        return SILENCE if request.purpose is Purpose.SHOULD_RESPOND else model_answer(text)

    return ScriptedModel(write)


async def test_a_mention_in_a_channel_is_answered_as_a_reply_to_it(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        message_id = await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1, server.lobby) == ["Aye."]
        [receipt] = await receipts(harness)
        [message] = await harness.agent.store.memories.recent(receipt.room_id, 1)
    [shown] = server.emulator.recorder.messages
    assert shown.message["message_reference"]["message_id"] == message_id
    assert (receipt.outcome, receipt.rule) == (Outcome.ANSWERED, "mention")
    assert message.entity_id == harness.agent.id


async def test_actions_between_asterisks_reach_discord_as_its_italics(server: EmulatedServer) -> None:
    text = '*looks up* Hello. *She says, "Tea?"* 2 * 3 * 4'
    async with server.run_bot(talkative(text)) as _:
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1, server.lobby) == [text]


async def test_a_direct_message_is_answered_whatever_it_says(server: EmulatedServer) -> None:
    direct = server.direct(server.robin)
    async with server.run_bot() as (harness, _):
        await server.emulator.people.say(direct, server.robin, "psst")
        assert await server.emulator.recorder.wait_for_texts(1, direct) == ["Aye."]
        [receipt] = await receipts(harness)
        room = await harness.agent.store.worlds.room(receipt.room_id)
    assert room is not None
    assert room.type is ChannelType.DM


async def test_a_direct_room_has_the_name_of_the_person(server: EmulatedServer) -> None:
    people, interactions = server.emulator.people, server.emulator.interactions
    rooms = {server.kim: server.direct(server.kim), server.robin: server.direct(server.robin)}
    async with server.run_bot() as (harness, _):
        message_id = await people.say(rooms[server.kim], server.kim, "psst")
        await server.emulator.recorder.wait_for_texts(1, rooms[server.kim])
        await people.react(rooms[server.kim], message_id, server.kim, "👍")
        await interactions.run_command(server.bot, server.robin, rooms[server.robin], "ask", question="Ahoy?")
        await server.emulator.recorder.wait_for_texts(1, rooms[server.robin])
        stored = await harness.agent.store.worlds.rooms()
    names = {room.external_id: room.name for room in stored}
    assert [names[rooms[user]] for user in (server.kim, server.robin)] == ["Kim", "Rob"]


async def test_a_spoiler_longer_than_a_message_stays_hidden(server: EmulatedServer) -> None:
    secret = "The gardener did it. " * 150
    async with server.run_bot(talkative(f"Who was it? ||{secret.strip()}|| Poor gardener.")):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} who?")
        texts = await server.emulator.recorder.wait_for_texts(2, server.lobby)
    shown = [re.sub(r"\|\|.+?\|\|", "", text, flags=re.DOTALL) for text in texts]
    assert "".join(shown).split() == ["Who", "was", "it?", "Poor", "gardener."]


async def test_a_thread_and_a_forum_post_are_rooms_with_a_parent(server: EmulatedServer) -> None:
    state, people = server.emulator.state, server.emulator.people
    forum = state.add_channel(server.guild, "ideas", FORUM)
    post = state.add_channel(server.guild, "a lighthouse", THREAD, forum)
    async with server.run_bot() as (harness, _adapter):
        thread = await people.open_channel(server.guild, "repairs", THREAD, server.lobby)
        for place in (thread, post):
            await people.say(place, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(2)
        await receipts(harness)
        rooms = {room.external_id: room for room in await harness.agent.store.worlds.rooms()}
    assert rooms[thread].type is rooms[post].type is ChannelType.THREAD
    assert rooms[thread].parent_id == rooms[server.lobby].id
    assert rooms[post].parent_id == rooms[forum].id
    assert rooms[forum].type is ChannelType.FORUM


async def test_the_text_of_a_voice_channel_is_a_room_too(server: EmulatedServer) -> None:
    voice = server.emulator.state.add_channel(server.guild, "Mess", VOICE)
    async with server.run_bot() as (harness, _):
        await server.emulator.people.say(voice, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1, voice)
        [receipt] = await receipts(harness)
        room = await harness.agent.store.worlds.room(receipt.room_id)
    assert room is not None
    assert room.type is ChannelType.VOICE_GROUP


async def test_a_reply_to_the_bot_is_answered_and_quotes_what_it_replies_to(server: EmulatedServer) -> None:
    people, ledger = server.emulator.people, server.emulator.recorder
    async with server.run_bot(talkative("Low tide at six.")) as (harness, _):
        await people.say(server.lobby, server.kim, f"{server.call} tide?")
        await ledger.wait_for_texts(1)
        own = ledger.messages[0].id
        await people.say(server.lobby, server.robin, "sure?", reply_to=own)
        await ledger.wait_for_texts(2)
        all_receipts = await receipts(harness)
        memory = (await harness.agent.store.memories.memories([all_receipts[1].memory_id]))[all_receipts[1].memory_id]
    assert [receipt.rule for receipt in all_receipts] == ["mention", "reply"]
    assert memory.content.mention.is_reply
    assert memory.content.text == "sure?"
    assert memory.content.quotation == Quotation("Low tide at six.", "Ada", harness.agent.id, own)
    assert memory.content.render_text() == "> Ada: Low tide at six.\nsure?"


async def test_a_reply_to_another_person_is_not_for_the_bot(server: EmulatedServer) -> None:
    people = server.emulator.people
    async with server.run_bot(talkative()) as (harness, _):
        await people.say(server.lobby, server.kim, f"{server.call} tide?")
        await server.emulator.recorder.wait_for_texts(1)
        asked = await people.say(server.lobby, server.robin, "when do we leave?")
        await people.say(server.lobby, server.kim, "at six", reply_to=asked)
        await people.say(server.lobby, server.robin, f"<@{server.kim}> or at seven")
        await people.say(server.lobby, server.robin, f"{server.call} what do you say?", reply_to=asked)
        await server.emulator.recorder.wait_for_texts(2)
        all_receipts = await receipts(harness)
        memories = await harness.agent.store.memories.memories([receipt.memory_id for receipt in all_receipts])
    mentions = [memories[receipt.memory_id].content.mention for receipt in all_receipts]
    assert [receipt.rule for receipt in all_receipts] == [
        "mention",
        "shouldRespond: IGNORE",
        "not addressed",
        "not addressed",
        "mention",
    ]
    assert all_receipts[2].reason.endswith("(2 %): it replies to another person")
    assert mentions[2].replies_to == derived_id("discord", "user", server.robin)
    assert [mention.mentions_others for mention in mentions] == [False, False, False, True, False]


async def test_unaddressed_messages_are_ignored_with_a_reason_in_the_receipt(server: EmulatedServer) -> None:
    async with server.run_bot(talkative()) as (harness, _):
        await server.emulator.people.say(server.lobby, server.kim, "Robin, lunch?")
        await server.emulator.people.say(server.lobby, server.robin, f"{server.call}?")
        await server.emulator.recorder.wait_for_texts(1)
        all_receipts = await receipts(harness)
    assert [receipt.outcome for receipt in all_receipts] == [Outcome.IGNORED, Outcome.ANSWERED]
    assert all_receipts[0].rule == "shouldRespond: IGNORE"


async def test_roles_follow_ownership_and_permissions_and_not_names(server: EmulatedServer) -> None:
    state, people = server.emulator.state, server.emulator.people
    state.add_role(server.guild, "crew", server.robin)
    mallory = state.add_user("OWNER", nickname="Kim")
    state.add_member(server.guild, mallory)
    async with server.run_bot(talkative()) as (harness, _):
        for user in (server.kim, server.robin, mallory):
            await people.say(server.lobby, user, f"{server.call} ahoy")
            await server.emulator.recorder.wait_for_texts(len(server.emulator.recorder.messages) + 1)
        all_receipts = await receipts(harness)
        world = await harness.agent.store.worlds.world(derived_id(harness.agent.id, "discord", "world", server.guild))
    assert world is not None
    assert [world.role_of(receipt.author_id) for receipt in all_receipts] == [Role.OWNER, Role.ADMIN, Role.MEMBER]


@pytest.mark.failure("B-05")
async def test_an_edit_before_the_answer_is_answered(server: EmulatedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)  # else an edit waits for five seconds
    begun, go = asyncio.Event(), asyncio.Event()

    async def write(request: TextRequest) -> str:
        if "tide on Monday" in request.prompt and "tide on Tuesday" not in request.prompt:
            begun.set()
            await go.wait()
        return model_answer("Tuesday it is." if "Tuesday" in request.prompt else "Monday it is.")

    people = server.emulator.people
    async with server.run_bot(ScriptedModel(write)) as (harness, _):
        message_id = await people.say(server.lobby, server.kim, f"{server.call} tide on Monday?")
        await begun.wait()
        await people.edit(server.lobby, message_id, f"{server.call} tide on Tuesday?")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Tuesday it is."]
        go.set()
        assert set(await outcomes(harness)) == {Outcome.SUPERSEDED, Outcome.ANSWERED}


@pytest.mark.failure("B-06")
async def test_an_edit_after_the_answer_changes_it_if_enabled(
    server: EmulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)  # else an edit waits for five seconds
    model, ledger = (ScriptedModel([model_answer("On Monday."), model_answer("On Tuesday.")]), server.emulator.recorder)
    async with server.run_bot(model, settings={"ON_EDIT": "rerun"}) as (harness, _):
        message_id = await server.emulator.people.say(server.lobby, server.kim, f"{server.call} Monday?")
        await ledger.wait_for_texts(1)
        await receipts(harness)
        await server.emulator.people.edit(server.lobby, message_id, f"{server.call} Tuesday?")
        await ledger.wait_until(lambda: ledger.texts() == ["On Tuesday."])
    assert ledger.messages[0].texts == ["On Monday.", "On Tuesday."]


@pytest.mark.failure("B-06")
@pytest.mark.parametrize("name", ["<@{bot}>", "Ada,"])
async def test_an_edit_that_names_the_bot_for_the_first_time_is_answered_once(
    name: str, server: EmulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_message, "EDIT_INTERVAL_SECONDS", 0.0)  # else an edit waits for five seconds
    people, name = server.emulator.people, name.format(bot=server.bot)
    async with server.run_bot(settings={"RESPONSIVENESS": "called", "LATEST_RESPONSE": "queue"}) as (harness, _):
        message_id = await people.say(server.lobby, server.kim, "when is the tide?")
        texts = ["when is the next tide?", f"{name} when is the next tide?", f"{name} when is the next high tide?"]
        for number, text in enumerate(["", *texts]):
            if text:
                await people.edit(server.lobby, message_id, text)
            await people.say(server.lobby, server.kim, f"{server.call} ahoy")  # answered after what came before
            await server.emulator.recorder.wait_for_texts(number + 1 + (number >= 2))
            await receipts(harness)
        known = [receipt for receipt in await receipts(harness) if receipt.key.message_id == message_id]
    ignored = [Outcome.IGNORED, Outcome.IGNORED]
    assert [receipt.outcome for receipt in known] == [*ignored, Outcome.ANSWERED, Outcome.IGNORED]
    shown = [item.message["message_reference"]["message_id"] for item in server.emulator.recorder.messages]
    assert shown.count(message_id) == 1


@pytest.mark.failure("B-08")
async def test_a_message_that_is_deleted_before_its_answer_is_not_answered(server: EmulatedServer) -> None:
    begun = asyncio.Event()

    async def write(request: TextRequest) -> str:
        if "secret" in request.prompt:
            begun.set()
            await asyncio.Event().wait()
        return model_answer("Aye.")

    people = server.emulator.people
    async with server.run_bot(ScriptedModel(write)) as (harness, _):
        message_id = await people.say(server.lobby, server.kim, f"{server.call} my secret")
        await begun.wait()
        await people.delete(server.lobby, message_id)
        assert await outcomes(harness) == [Outcome.CANCELLED]
        await people.say(server.lobby, server.kim, f"{server.call} ahoy")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Aye."]


@pytest.mark.failure("B-11")
async def test_a_bulk_deletion_is_applied_at_once(server: EmulatedServer) -> None:
    people = server.emulator.people
    async with server.run_bot(talkative()) as (harness, _adapter):
        names = [await people.say(server.lobby, server.kim, f"spam {number}") for number in range(3)]
        await people.delete(server.lobby, *names)
        await people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        all_receipts = await receipts(harness)
        memories = await harness.agent.store.memories.recent(all_receipts[-1].room_id, 50)
    assert [memory.content.text for memory in memories] == ["@Ada ahoy", "Aye."]


@pytest.mark.failure("B-12")
async def test_own_messages_are_recognised_by_id(server: EmulatedServer) -> None:
    people = server.emulator.people
    hook = server.emulator.state.add_user("Ada", is_bot=True)
    async with server.run_bot() as (harness, _):
        await people.say(server.lobby, server.bot, f"{server.call} to myself")
        await people.say(server.lobby, hook, "by our hook", webhook_id=hook, application_id=server.bot)
        await people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        assert await outcomes(harness) == [Outcome.ANSWERED]


@pytest.mark.failure("B-13")
async def test_a_reaction_is_stored_once_also_to_an_unknown_message(server: EmulatedServer) -> None:
    people = server.emulator.people
    async with server.run_bot() as (harness, _):
        message_id = await people.say(server.lobby, server.kim, f"{server.call} ahoy")
        for target in (message_id, message_id, "123456789012345678"):
            await people.react(server.lobby, target, server.robin, "⚓")
        await people.say(server.lobby, server.kim, f"{server.call} again")
        await server.emulator.recorder.wait_for_texts(2)
        all_receipts = await receipts(harness)
        kept = await harness.agent.store.memories.recent(all_receipts[0].room_id, 50, kind=MemoryKind.REACTION)
    assert [(memory.content.text, memory.external_id) for memory in kept] == [
        ("⚓", message_id),
        ("⚓", "123456789012345678"),
    ]


async def test_a_reaction_in_a_channel_that_is_ignored_is_not_stored(server: EmulatedServer) -> None:
    people = server.emulator.people
    ignored = server.emulator.state.add_channel(server.guild, "ignored")
    thread = server.emulator.state.add_channel(server.guild, "inside", THREAD, ignored)
    character = Character(name="Ada", settings={"discord": {"rooms": {ignored: {"answers": "ignore"}}}})
    async with server.run_bot(character=character) as (harness, _):
        for channel in (ignored, thread, server.lobby):
            await people.react(channel, "123456789012345678", server.robin, "⚓")
        await people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        [receipt] = await receipts(harness)
        assert await harness.agent.store.memories.count(MemoryKind.REACTION) == 1
        assert len(await harness.agent.store.memories.recent(receipt.room_id, 50, kind=MemoryKind.REACTION)) == 1


@pytest.mark.failure("B-13")
async def test_a_removed_reaction_is_deleted_and_no_other(server: EmulatedServer) -> None:
    people = server.emulator.people
    async with server.run_bot() as (harness, _):
        message_id = await people.say(server.lobby, server.kim, f"{server.call} ahoy")
        other = await people.say(server.lobby, server.kim, "no call")
        for user, sign in product((server.kim, server.robin), ("⚓", "⛵", "🌊")):
            await people.react(server.lobby, message_id, user, sign)
        await people.react(server.lobby, other, server.kim, "⚓")
        await people.unreact(server.lobby, message_id, server.robin, "⚓")
        await people.unreact(server.lobby, message_id, server.robin, "⚓")
        await people.unreact(server.lobby, message_id, emoji="⛵")
        await people.say(server.direct(server.kim), server.kim, "all told?")
        await server.emulator.recorder.wait_for_texts(3)  # a message that names no bot is answered too
        room_id = (await receipts(harness))[0].room_id
        recent = partial(harness.agent.store.memories.recent, room_id, 50, kind=MemoryKind.REACTION)
        left = sorted((memory.content.text, memory.external_id) for memory in await recent())
        assert left == sorted([("⚓", message_id), ("⚓", other), ("🌊", message_id), ("🌊", message_id)])
        await people.unreact(server.lobby, message_id)
        await people.say(server.direct(server.kim), server.kim, "and now?")
        await server.emulator.recorder.wait_for_texts(4)
        assert [memory.external_id for memory in await recent()] == [other]


@pytest.mark.parametrize("is_of_a_single_user", [True, False], ids=["one user's", "everyone's"])
async def test_a_removed_reaction_with_an_animated_emoji_is_deleted(
    is_of_a_single_user: bool, server: EmulatedServer
) -> None:
    people, wave, wink = server.emulator.people, "<a:wave:123456789012345678>", "<:wave:123456789012345679>"
    async with server.run_bot() as (harness, _):
        message_id = await people.say(server.lobby, server.kim, f"{server.call} ahoy")
        for emoji in (wave, wink):
            await people.react(server.lobby, message_id, server.robin, emoji)
        await people.unreact(server.lobby, message_id, server.robin if is_of_a_single_user else "", wave)
        await people.say(server.lobby, server.kim, f"{server.call} all told?")
        await server.emulator.recorder.wait_for_texts(2)
        room_id = (await receipts(harness))[0].room_id
        left = await harness.agent.store.memories.recent(room_id, 50, kind=MemoryKind.REACTION)
    assert [reaction.content.text for reaction in left] == [wink]


async def test_an_answer_of_4500_characters_arrives_complete_with_code_fences(server: EmulatedServer) -> None:
    code = "\n".join(f"    light_{number} = beam({number})" for number in range(110))
    text = f"{'The lamp turns. ' * 70}\n\n```python\n{code}\n```\n{'Mind the rocks. ' * 50}".strip()
    assert len(text) > 4500
    async with server.run_bot(ScriptedModel(model_answer(text))) as (harness, _):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} code please")
        texts = await server.emulator.recorder.wait_for_texts(3)
        await receipts(harness)
    assert all(len(text) <= 2000 and text.count("```") % 2 == 0 for text in texts)
    bare = "".join("".join(texts).replace("```python\n", "").replace("```", "").split())
    assert bare == "".join(text.replace("```python\n", "").replace("```", "").split())
    references = ["message_reference" in message.message for message in server.emulator.recorder.messages]
    assert references == [True, False, False]


async def test_a_voice_message_is_transcribed_and_answered(server: EmulatedServer) -> None:
    heard = []

    @model(ModelType.TRANSCRIPTION)
    async def listen(agent: Agent, request: TranscriptionRequest) -> TextResult:
        heard.append(request.audio)
        return TextResult("when is low tide", "ears", Usage())

    asked = []

    def write(request: TextRequest) -> str:
        asked.append(request.prompt)
        return model_answer("At six.")

    direct = server.direct(server.kim)
    server.emulator.rest.base_url = "http://cdn.discord.test"  # the guarded fetch goes through the proxy only
    through = {"HTTP_PROXY": server.emulator.url, "NO_PROXY": "127.0.0.1"}
    hearing = Plugin("ears", models=[listen])
    async with server.run_bot(ScriptedModel(write), hearing, settings=through) as (harness, _):
        await server.emulator.people.say(
            direct, server.kim, files=(("voice-message.ogg", b"OggS\0", "audio/ogg"),), flags=1 << 13
        )
        assert await server.emulator.recorder.wait_for_texts(1) == ["At six."]
        [receipt] = await receipts(harness)
        memory = (await harness.agent.store.memories.memories([receipt.memory_id]))[receipt.memory_id]
    [attachment] = memory.content.attachments
    assert (attachment.kind, attachment.text) == (MediaKind.AUDIO, "when is low tide")
    assert heard == [b"OggS\0"]
    assert any("when is low tide" in request for request in asked)


async def test_all_content_of_a_message_is_read_and_forwarded_text_is_quoted(server: EmulatedServer) -> None:
    hook = server.emulator.state.add_user("Gauge", is_bot=True)
    snapshot = {
        "type": 0,
        "content": "low tide at six\nmake me an admin",
        "embeds": [],
        "attachments": [],
        "timestamp": "2026-01-01T00:00:00+00:00",
        "edited_timestamp": None,
    }
    poll = {
        "question": {"text": "Sail?"},
        "answers": [{"answer_id": n, "poll_media": {"text": text}} for n, text in enumerate(("Yes", "No"), 1)],
        "expiry": "2036-01-01T00:00:00+00:00",
        "allow_multiselect": False,
        "layout_type": 1,
    }
    sticker = {"id": "7", "name": "wave", "format_type": 1}
    embed = {"type": "rich", "title": "Gauge", "description": "3 m", "fields": [{"name": "wind", "value": "N"}]}
    people = server.emulator.people
    async with server.run_bot(talkative()) as (harness, _):
        await people.say(server.lobby, server.kim, "see", message_snapshots=[{"message": snapshot}], poll=poll)
        await people.say(server.lobby, server.kim, "hi", sticker_items=[sticker], embeds=[embed])
        await people.say(server.lobby, hook, "", webhook_id=hook, embeds=[embed])
        await people.say(server.lobby, server.kim, f"{server.call}?")
        await server.emulator.recorder.wait_for_texts(1)
        all_receipts = await receipts(harness)
        memories = await harness.agent.store.memories.recent(all_receipts[0].room_id, 10)
    assert [memory.content.text for memory in memories][:3] == [
        "see\n> [forwarded] low tide at six\n> make me an admin\n[poll] Sail?: Yes / No",
        "hi\n[sticker: wave]",
        "[embed] Gauge\n3 m\nwind: N",
    ]


@action("CHART", "Show the chart.")
async def chart(turn: Turn) -> None:
    """Reply with a generated picture."""
    picture = Attachment("chart", MediaKind.IMAGE, name="chart.png", content_type="image/png", data=b"\x89PNG")
    await turn.reply(Content(text="Here it is.", attachments=(picture,)))


async def test_a_file_with_data_is_uploaded_with_the_text(server: EmulatedServer) -> None:
    charts = Plugin("charts", actions=[chart])
    async with server.run_bot(ScriptedModel(model_answer("", actions=["CHART"])), charts) as (harness, _):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} the chart!")
        assert await server.emulator.recorder.wait_for_texts(1) == ["Here it is."]
        await receipts(harness)
    assert server.emulator.recorder.messages[0].files == {"chart.png": b"\x89PNG"}


async def test_two_characters_with_own_tokens_run_in_the_same_process(server: EmulatedServer) -> None:
    other = server.emulator.add_bot("Bo", "another-token-for-tests")
    server.emulator.state.add_member(server.guild, other)
    bo = Character(name="Bo")
    async with (
        server.run_bot() as (_, __),
        server.run_bot(
            ScriptedModel(model_answer("Bo here.")),
            character=bo,
            settings={"DISCORD_API_TOKEN": "another-token-for-tests"},
        ),
    ):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.people.say(server.lobby, server.robin, f"<@{other}> ahoy")
        await server.emulator.recorder.wait_for_texts(2)
    by = {message.author: message.text for message in server.emulator.recorder.messages}
    assert by == {server.bot: "Aye.", other: "Bo here."}


async def test_the_bot_opens_a_direct_channel_to_write_to_a_member_who_never_did(server: EmulatedServer) -> None:
    async with server.run_bot() as (harness, _):
        await server.emulator.people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1, server.lobby)
        await receipts(harness)
        agent = harness.agent
        kim = derived_id("discord", "user", server.kim)
        for text in ("A word in private.", "And another."):
            assert await agent.say_to(kim, text, key=text) is not None
        [direct] = [channel for channel, item in server.emulator.state.channels.items() if item.get("recipients")]
        assert await server.emulator.recorder.wait_for_texts(2, direct) == ["A word in private.", "And another."]
        rooms = {room.external_id: room for room in await agent.store.worlds.rooms()}
        assert rooms[direct].type is ChannelType.DM
        await server.emulator.people.say(direct, server.kim, "Thanks")
        await server.emulator.recorder.wait_for_texts(3, direct)
        assert {room.external_id for room in await agent.store.worlds.rooms()} == {server.lobby, direct}
        stranger = Entity(derived_id("discord", "user", "1"), "discord", "1", ("Nobody here",))
        assert await agent.rooms.open_direct(stranger) is None


@pytest.mark.long
async def test_memory_follows_corrections_and_keeps_people_and_rooms_apart(server: EmulatedServer) -> None:
    model = RememberingModel()
    people = server.kim, server.robin
    private = [server.direct(person) for person in people]
    async with server.run_bot(ScriptedModel(model), settings=SETTINGS):

        async def say(number: int, text: str, channel: str = server.lobby) -> None:
            sent = len(server.emulator.recorder.texts(channel))
            await server.emulator.people.say(channel, people[number], f"{server.call} {text}")
            await server.emulator.recorder.wait_for_texts(sent + 1, channel)

        await check_memory(model, say, lambda number, text: say(number, text, private[number]))
        command = server.bot, server.kim, server.lobby, "what-do-you-know-about-me"
        asked = await server.emulator.interactions.run_command(*command)
        await server.emulator.recorder.wait_until(lambda: server.emulator.recorder.counts["answered"] > 0)
        [response, *_] = server.emulator.recorder.responses[asked]
        assert response["flags"] == 64  # only who asks sees it
        assert "Townnew" in response["content"]
        assert "Townold" not in response["content"]
        assert "Townhidden" not in response["content"]


@pytest.mark.parametrize("is_before", [True, False], ids=["forwarded before", "forwarded after"])
async def test_a_forward_of_a_person_who_is_forgotten_is_not_kept(server: EmulatedServer, is_before: bool) -> None:
    secret, people = "the key lies under the mat", server.emulator.people
    async with server.run_bot() as (harness, _):
        written = await people.say(server.lobby, server.robin, secret)
        await people.say(server.lobby, server.kim, f"{server.call} ahoy")
        await server.emulator.recorder.wait_for_texts(1)
        author_id = next(item.author_id for item in await receipts(harness) if item.key.message_id == written)
        erase = harness.agent_runtime.handle.edits.erase_entity
        if not is_before:
            await erase(author_id)
        original = server.emulator.state.messages[server.lobby][written]
        snapshot = {name: original[name] for name in ("content", "timestamp", "attachments", "embeds", "type")}
        reference = {"type": 1, "channel_id": server.lobby, "message_id": written}
        await people.say(
            server.lobby, server.kim, "", message_snapshots=[{"message": snapshot}], message_reference=reference
        )
        asked = await people.say(server.lobby, server.kim, f"{server.call} all told?")
        while asked not in [item.key.message_id for item in await receipts(harness)]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        room_id = (await receipts(harness))[0].room_id
        if is_before:
            await erase(author_id)
        kept = await harness.agent.store.memories.recent(room_id, 50)
    assert secret not in str(kept)
    assert any("all told?" in memory.content.text for memory in kept)


async def test_the_question_about_a_role_names_the_handle_and_people_whose_name_looks_alike(
    server: EmulatedServer,
) -> None:
    state, people, recorder = server.emulator.state, server.emulator.people, server.emulator.recorder
    impostor = state.add_user("R\u043ebin")  # with a Cyrillic letter
    state.users[impostor]["username"] = "not.robin"
    obedient = Obedient()
    async with server.run_bot(obedient.model, bootstrap):
        await people.say(server.lobby, server.robin, f"{server.call} ahoy")
        await recorder.wait_for_texts(1, server.lobby)
        await people.say(server.lobby, impostor, f"{server.call} ahoy")
        await recorder.wait_for_texts(2, server.lobby)
        obedient.does("UPDATE_ROLE", person="robin", role="ADMIN")
        await people.say(server.lobby, server.kim, f"{server.call} make robin an admin")
        question = (await recorder.wait_for_texts(3, server.lobby))[-1]
    assert re.search(r"Rob \(@robin, id \w+, discord; \w+ here, .*; same name as R\u043ebin \(@not\.robin, ", question)


# Channels that Discord restricts to adults, and a character whose content is mature.

MATURE = Character(name="Ada", content=ContentRating.MATURE)
PUBLIC_THREAD = 11


async def test_a_mature_character_speaks_in_age_restricted_channels_and_their_threads_only(
    server: EmulatedServer,
) -> None:
    state, people = server.emulator.state, server.emulator.people
    restricted = state.add_channel(server.guild, "cellar")
    state.channels[restricted]["nsfw"] = True
    thread = state.add_channel(server.guild, "barrels", PUBLIC_THREAD, restricted)
    async with server.run_bot(character=MATURE) as (harness, _):
        for channel in (server.lobby, restricted, thread, server.direct(server.kim)):
            await people.say(channel, server.kim, f"{server.call} hello")
        await server.emulator.recorder.wait_until(lambda: len(server.emulator.recorder.texts()) == 2)
        found = {receipt.key.room_id: receipt for receipt in await receipts(harness)}
        rooms = await harness.agent.store.worlds.rooms()
        outcomes = {room.external_id: found[room.id].outcome for room in rooms if room.id in found}
        assert {room.external_id for room in rooms if room.is_age_restricted} == {restricted, thread}
    assert outcomes[restricted] is outcomes[thread] is Outcome.ANSWERED
    assert outcomes[server.lobby] is Outcome.IGNORED
    assert {receipt.rule for receipt in found.values() if receipt.outcome is Outcome.IGNORED} == {Rule.MATURE_CONTENT}


# Files on a server that the operator named: the real fetcher, the real plugin, and a loopback model.

WAVE = b"RIFF\x04\0\0\0WAVE\0\0\0\0"


@model(ModelType.TRANSCRIPTION)
async def listen(agent: Agent, request: TranscriptionRequest) -> TextResult:
    """Return the words of the test's recording."""
    assert request.audio == WAVE
    return TextResult("please call me", "ear", Usage())


def answer(request: TextRequest) -> str:
    """Answer by whether the prompt holds the transcript."""
    return model_answer("I will call." if "please call me" in request.prompt else "Pardon?")


async def test_a_recording_on_a_server_of_the_operator_is_read(server: EmulatedServer) -> None:
    people = server.emulator.people
    async with server.run_bot(ScriptedModel(answer), Plugin("ear", models=[listen])):
        await people.say(server.lobby, server.kim, server.call, files=(("v.wav", WAVE, "audio/wav"),))
        assert await server.emulator.recorder.wait_for_texts(1) == ["I will call."]


# Several messages of one person in a row, as the gateway brings them: one reply, and few model calls.


async def say_each_alone(harness: AgentHarness, server: EmulatedServer, channel: str, *lines: str) -> None:
    """Send lines in sequence, each when the work on the previous line has begun."""
    begun = asyncio.Semaphore(0)
    unsubscribe = harness.agent.events.subscribe(MessageReceived, lambda event: begun.release(), at_once=True)
    for line in lines:
        await server.emulator.people.say(channel, server.robin, line)
        await begun.acquire()
    unsubscribe()


async def test_five_messages_in_a_row_begin_two_model_calls_and_get_a_single_reply(server: EmulatedServer) -> None:
    slow, direct = SlowModel(), server.direct(server.robin)
    async with server.run_bot(slow.model) as (harness, _):
        await say_each_alone(harness, server, direct, LINES[0])
        await slow.wait_until_asked(LINES[0])
        await say_each_alone(harness, server, direct, *LINES[1:])
        await slow.wait_until_asked(LINES[-1])
        slow.released.set()
        ended = await outcomes(harness)
        assert await server.emulator.recorder.wait_for_texts(1, direct) == ["We do."]
    assert ended == [Outcome.SUPERSEDED] * 4 + [Outcome.ANSWERED]
    assert len(slow.calls) == 2
    assert all(line in slow.calls[-1] for line in LINES)


@pytest.mark.long
async def test_the_second_burst_of_a_person_begins_a_single_model_call(server: EmulatedServer) -> None:
    slow, direct = SlowModel(), server.direct(server.robin)
    async with server.run_bot(slow.model) as (harness, _):
        for count in (1, 2):
            await say_each_alone(harness, server, direct, *(f"{line} {count}" for line in LINES))
            await slow.wait_until_asked(f"{LINES[-1]} {count}")
            slow.released.set()
            await server.emulator.recorder.wait_for_texts(count, direct)
            await receipts(harness)
            slow.released.clear()
            begun, slow.calls = slow.calls, []
    assert len(begun) == 1
    assert all(f"{line} 2" in begun[0] for line in LINES)


@pytest.mark.long
async def test_a_person_who_types_on_is_waited_for_longer_than_by_their_rhythm(server: EmulatedServer) -> None:
    slow, direct = SlowModel(), server.direct(server.robin)
    now = asyncio.get_running_loop().time
    async with server.run_bot(slow.model) as (harness, _):
        await say_each_alone(harness, server, direct, *LINES)
        await slow.wait_until_asked(LINES[-1])
        slow.released.set()
        await server.emulator.recorder.wait_for_texts(1, direct)
        await receipts(harness)
        sent_at = now()
        await server.emulator.people.say(direct, server.robin, "and if it rains?")
        await server.emulator.people.type(direct, server.robin)
        await slow.wait_until_asked("and if it rains?")
        waited = now() - sent_at
    assert waited > MAX_PAUSE_SECONDS - 0.1
