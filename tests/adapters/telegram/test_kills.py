"""A-01 to A-18 on Telegram: killed at every stage of a message's road, and nothing is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.telegram.emulator import Emulator
from adapters.telegram.outgoing import MARK
from tests.adapters.telegram.conftest import TOKEN
from tests.chaos.program import Nursery, Program

SECONDS = 60.0
CLEAR = ("ingress.pre_commit", "ingress.post_commit", "outbox.committed")
UNCLEAR = ("send.pre_write", "send.post_write", "send.pre_record")
Keep = Callable[..., Program]


@pytest.fixture
def program_on(tmp_path: Path, nursery: Nursery) -> Keep:
    """Give what makes the bot that lives on an emulated Telegram, and is killed there."""

    def program_on(telegram: Emulator, unclear: str = "resend_marked") -> Program:
        settings = {
            "STREAMING": "false",
            "LATEST_RESPONSE": "queue",
            "TELEGRAM_UNCLEAR": unclear,
            "ON_EDIT": "rerun",
            **telegram.settings(telegram.bot(TOKEN)),
        }
        return Program(nursery, tmp_path, settings, "telegram", plugins=["sql"])

    return program_on


async def test_a01_a16_killed_at_every_stage_nothing_is_lost_and_what_may_be_double_is_marked(
    program_on: Keep,
) -> None:
    async with Emulator() as telegram:
        program = program_on(telegram)
        chats = {}
        for stage in (*CLEAR, *UNCLEAR):
            person = telegram.people.person(stage.replace(".", " "))
            chats[stage] = telegram.people.private(person)
            telegram.people.say(chats[stage], person, "hello")
            await program.killed_at(f"{stage}:1")
        said = telegram.ledger.said
        async with program.living() as life:
            await telegram.ledger.until(lambda: all(said(chat["id"]) for chat in chats.values()), SECONDS)
            life.stop()
            await life.ended()
    for stage, chat in chats.items():
        texts = said(chat["id"])
        plain = [text for text in texts if not text.startswith(MARK)]
        marked = [text.removeprefix(MARK) for text in texts if text.startswith(MARK)]
        assert texts, f"{stage}: lost"
        assert len(plain) <= 1, f"{stage}: a double without a mark"
        assert not plain or set(marked) <= set(plain), f"{stage}: the mark stands on something else"


async def test_a17_killed_in_the_middle_of_a_send_nothing_is_said_twice_where_it_is_held(
    program_on: Keep,
) -> None:
    async with Emulator() as telegram:
        program = program_on(telegram, unclear="hold")
        kim = telegram.people.person("Kim")
        chat = telegram.people.private(kim)
        telegram.people.say(chat, kim, "hello")
        await program.killed_at("send.pre_record:1")
        async with program.living() as life:
            telegram.people.say(chat, kim, "what is 2 + 2?")
            await telegram.ledger.until(lambda: len(telegram.ledger.said()) == 2, SECONDS)
            life.stop()
            await life.ended()
        assert len(set(telegram.ledger.said())) == 2
        assert not [text for text in telegram.ledger.said() if text.startswith(MARK)]


async def test_a08_a16_killed_while_a_command_is_answered_or_an_answer_is_changed(
    program_on: Keep,
) -> None:
    async with Emulator() as telegram:
        program, ledger = program_on(telegram), telegram.ledger
        kim, robin = telegram.people.person("Kim"), telegram.people.person("Robin")
        chat, other = telegram.people.private(kim), telegram.people.private(robin)
        question = telegram.people.say(chat, kim, "what is 2 + 2?")
        async with program.dying("errand.pre_write:1"):
            await ledger.until(lambda: bool(ledger.said(chat["id"])), SECONDS)
            before = ledger.said(chat["id"])
            telegram.people.edit(question, "what is 3 + 4?")
            telegram.people.say(other, robin, "/forget_me")
        assert ledger.said(other["id"]) == []
        await program.killed_at("edit.pre_write:1")
        assert ledger.said(chat["id"]) == before
        await program.killed_at("edit.post_write:1")
        async with program.living() as life:
            await ledger.until(lambda: ledger.said(chat["id"]) != before, SECONDS)
            await ledger.until(lambda: bool(ledger.said(other["id"])), SECONDS)
            life.stop()
            await life.ended()
    assert len([one for one in ledger.shown if one.chat == chat["id"]]) == 1
    assert len(set(ledger.said(other["id"]))) == 1
