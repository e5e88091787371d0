"""A-01 to A-18 on Telegram: killed at every stage of a message's road, and nothing is lost."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.telegram.emulator import Emulator
from adapters.telegram.outgoing import MARK
from tests.adapters.telegram.conftest import TOKEN
from tests.chaos.program import Life, Nursery

ENTRY = "[greenroom.adapters]\ntelegram = adapters.telegram:adapter\n"
SECONDS = 60.0
CLEAR = ("ingress.pre_commit", "ingress.post_commit", "outbox.committed")
UNCLEAR = ("send.pre_write", "send.post_write", "send.pre_record")


class Telegrams(Nursery):
    """A nursery whose children have Telegram's library already."""

    module = "tests.adapters.telegram.nursery"


class Keeper:
    """Starts the bot in a folder of its own, as often as it is killed."""

    def __init__(self, folder: Path, emulator: Emulator, nursery: Nursery) -> None:
        (folder / "ada.json").write_text(json.dumps({"name": "Ada", "plugins": ["sql"]}))
        self._folder, self._emulator, self._nursery = folder, emulator, nursery
        self._bot = emulator.bot(TOKEN)

    @asynccontextmanager
    async def living(self, kill_at: str, unclear: str = "resend_marked") -> AsyncIterator[Life]:
        """Start it, to kill itself at a point; what lives at the end is killed."""
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "DATABASE_URL": f"sqlite:///{self._folder / 'greenroom.db'}",
            "BOT_DATA_DIR": str(self._folder),
            "BOT_KILL_AT": kill_at,
            "CRASH_LOOP_BOOTS": "0",
            "STREAMING": "false",
            "LATEST_RESPONSE": "queue",
            "TELEGRAM_UNCLEAR": unclear,
            "ON_EDIT": "rerun",
            **self._emulator.settings(self._bot),
        }
        order = {
            "arguments": ["run", "-c", "ada.json", "--only", "telegram"],
            "environment": environment,
            "folder": str(self._folder),
            "log": str(self._folder / "log.txt"),
        }
        pid = await self._nursery.bear(order)
        life = Life(pid, asyncio.get_running_loop().create_task(self._nursery.told()))
        try:
            yield life
        finally:
            life.kill()
            await life.ended(SECONDS)

    async def killed_at(
        self,
        stage: str,
        unclear: str = "resend_marked",
        *,
        once: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        async with self.living(f"{stage}:1", unclear) as life:
            if once is not None:
                await once()
            code = await life.ended(SECONDS)
        assert code == -9, f"{stage}: {code}: {(self._folder / 'log.txt').read_text()[-3000:]}"


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    """Give where children come from, with the adapter installed."""
    package = tmp_path / "installed" / "greenroom_telegram-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: greenroom-telegram\nVersion: 1\n")
    (package / "entry_points.txt").write_text(ENTRY)
    with Telegrams(tmp_path) as opened:
        yield opened


async def test_a01_a16_killed_at_every_stage_nothing_is_lost_and_what_may_be_double_is_marked(
    tmp_path: Path, nursery: Nursery
) -> None:
    async with Emulator() as telegram:
        keeper = Keeper(tmp_path, telegram, nursery)
        chats = {}
        for stage in (*CLEAR, *UNCLEAR):
            person = telegram.people.person(stage.replace(".", " "))
            chats[stage] = telegram.people.private(person)
            telegram.people.say(chats[stage], person, "hello")
            await keeper.killed_at(stage)
        said = telegram.ledger.said
        async with keeper.living("") as life:
            await telegram.ledger.until(lambda: all(said(chat["id"]) for chat in chats.values()), SECONDS)
            life.stop()
            await life.ended(SECONDS)
    for stage, chat in chats.items():
        texts = said(chat["id"])
        plain = [text for text in texts if not text.startswith(MARK)]
        marked = [text.removeprefix(MARK) for text in texts if text.startswith(MARK)]
        assert texts, f"{stage}: lost"
        assert len(plain) <= 1, f"{stage}: a double without a mark"
        assert not plain or set(marked) <= set(plain), f"{stage}: the mark stands on something else"


async def test_a17_killed_in_the_middle_of_a_send_nothing_is_said_twice_where_it_is_held(
    tmp_path: Path, nursery: Nursery
) -> None:
    async with Emulator() as telegram:
        keeper = Keeper(tmp_path, telegram, nursery)
        kim = telegram.people.person("Kim")
        chat = telegram.people.private(kim)
        telegram.people.say(chat, kim, "hello")
        await keeper.killed_at("send.pre_record", "hold")
        async with keeper.living("", "hold") as life:
            telegram.people.say(chat, kim, "what is 2 + 2?")
            await telegram.ledger.until(lambda: len(telegram.ledger.said()) == 2, SECONDS)
            life.stop()
            await life.ended(SECONDS)
        assert len(set(telegram.ledger.said())) == 2
        assert not [text for text in telegram.ledger.said() if text.startswith(MARK)]


async def test_a08_a16_killed_while_a_command_is_answered_or_an_answer_is_changed(
    tmp_path: Path, nursery: Nursery
) -> None:
    async with Emulator() as telegram:
        keeper, ledger = Keeper(tmp_path, telegram, nursery), telegram.ledger
        kim, robin = telegram.people.person("Kim"), telegram.people.person("Robin")
        chat, other = telegram.people.private(kim), telegram.people.private(robin)
        question = telegram.people.say(chat, kim, "what is 2 + 2?")
        before: list[str] = []

        async def edit() -> None:
            await ledger.until(lambda: bool(ledger.said(chat["id"])), SECONDS)
            before.extend(ledger.said(chat["id"]))
            telegram.people.edit(question, "what is 3 + 4?")
            telegram.people.say(other, robin, "/forget_me")

        await keeper.killed_at("errand.pre_write", once=edit)
        assert ledger.said(other["id"]) == []
        await keeper.killed_at("edit.pre_write")
        assert ledger.said(chat["id"]) == before
        await keeper.killed_at("edit.post_write")
        async with keeper.living("") as life:
            await ledger.until(lambda: ledger.said(chat["id"]) != before, SECONDS)
            await ledger.until(lambda: bool(ledger.said(other["id"])), SECONDS)
            life.stop()
            await life.ended(SECONDS)
    assert len([one for one in ledger.shown if one.chat == chat["id"]]) == 1
    assert len(set(ledger.said(other["id"]))) == 1
