"""A person on Telegram who is not read, by their own command."""

from pathlib import Path

import pytest

from adapters.telegram.emulator import Emulator
from bot import Entity, derived_id
from bot.domain.hiding import HIDDEN_TEXT
from bot.domain.ledger import Rule
from bot.testing import model_answer
from tests.adapters.telegram.conftest import TelegramHarness, run_character
from tests.canaries import Canaries, find_canaries, open_file


def write_everything(harness: TelegramHarness, chat: dict, robin: dict, kim: dict, canaries: Canaries) -> None:  # type: ignore[type-arg]
    """Let Robin write in every way that Telegram has, and Kim quote and forward it."""
    people = harness.people
    written = people.say(chat, robin, f"@ada_bot {canaries.write()}")
    people.edit(written, canaries.write())
    document = people.store_file(canaries.write().encode(), name=f"{canaries.write(1)}.txt", mime_type="text/plain")
    captioned = people.say(chat, robin, document=document | {"file_name": canaries.write(1)}, caption=canaries.write())
    people.edit(captioned, canaries.write())
    people.say(chat, robin, voice=people.store_file(canaries.write().encode(), duration=3, mime_type="audio/ogg"))
    people.send_album(chat, robin, [b"one", b"two"], canaries.write())
    people.say(chat, robin, contact={"phone_number": canaries.write(1), "first_name": canaries.write(1)})
    people.say(chat, robin, canaries.write(), reply_to=written)
    people.say(chat, robin, f"/{canaries.write(1)} {canaries.write()}")
    people.say(chat, robin, f"/ask {canaries.write()}")
    people.react(written, robin, "👍")
    people.say(people.open_private_chat(robin), robin, canaries.write())
    people.say(chat, kim, "is that so?", reply_to=written, quote={"text": canaries.write(), "position": 0})
    origin = {"type": "user", "date": written["date"], "sender_user": robin}
    people.say(chat, kim, canaries.write(), forward_origin=origin)
    people.say(chat, robin | {"first_name": canaries.write(1), "last_name": canaries.write(1)}, canaries.write())


@pytest.mark.long
async def test_nothing_is_kept_of_what_a_person_writes_who_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    canaries = Canaries()
    async with open_file(tmp_path) as store, Emulator() as telegram:
        async with run_character(telegram, lambda request: model_answer("Aye."), store=store) as harness:
            people = harness.people
            robin, kim = people.add_user("Robin"), people.add_user("Kim")
            chat = people.add_group("Harbour", robin, kim)
            people.say(chat, robin, "/ignore_me")
            await telegram.recorder.wait_until(lambda: bool(store.marks.not_read))
            write_everything(harness, chat, robin, kim, canaries)
            bot, renamed = harness.bot.user, robin | {"first_name": canaries.write(1)}
            private = people.open_private_chat(robin) | {"first_name": canaries.write(1)}
            people.change_member(private, bot, "kicked", renamed)
            people.change_member(private, bot, "member", renamed)
            people.say(chat, kim, f"@{harness.bot.user['username']} and now?")
            receipts = await harness.wait_receipts()
            await harness.wait_deliveries()
            model = harness.model
        robin_id = derived_id("telegram", "user", str(robin["id"]))
        rules = [receipt.rule for receipt in receipts if receipt.author_id == robin_id]
        history = await store.memories.recent(receipts[-1].room_id, 50)
        shown = [caplog.text, model.requests, history, await store.ledger.unreadable_events()]
        person = Entity(robin_id, "telegram", str(robin["id"]))
        assert await find_canaries(tmp_path, store, person, shown) == set()
    assert len(rules) >= 8
    assert set(rules) == {Rule.NOT_READ}
    assert [memory.content.text for memory in history].count(HIDDEN_TEXT) >= 8
    assert "and now?" in model.requests[-1].prompt  # type: ignore[union-attr]
    assert canaries.count >= 1000


@pytest.mark.long
async def test_nothing_is_kept_of_what_a_person_wrote_who_had_it_deleted(tmp_path: Path) -> None:
    canaries = Canaries()
    async with open_file(tmp_path) as store, Emulator() as telegram:
        async with run_character(telegram, lambda request: model_answer("Aye."), store=store) as harness:
            people = harness.people
            robin, kim = people.add_user("Robin"), people.add_user("Kim")
            chat = people.add_group("Harbour", robin, kim)
            write_everything(harness, chat, robin, kim, canaries)
            await harness.wait_receipts()
            await harness.wait_deliveries()
            robin_id = derived_id("telegram", "user", str(robin["id"]))
            person = Entity(robin_id, "telegram", str(robin["id"]))
            before = await find_canaries(tmp_path, store, person, ())
            await harness.runtime.agents[0].handle.edits.erase_entity(robin_id)
            await harness.wait_deliveries()
        after = await find_canaries(tmp_path, store, person, [await store.ledger.unreadable_events()])
    assert len(before) > 1000
    assert after == set()
