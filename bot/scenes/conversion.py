"""Makes a scene and its answers of stored messages; people get other names, the same everywhere."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from bot.domain.content import Content
from bot.domain.environment import ChannelType, Entity, Role, Room
from bot.domain.ledger import Outcome, Receipt, Rule
from bot.domain.memory import Memory
from bot.errors import ConfigError
from bot.models.types import Purpose
from bot.receipts import REPLAY_KEY, TRACE_KEY, ReplayRecord
from bot.runtime.character_reload import AgentConfig
from bot.scenes.recording import RecordedAnswer, RecordedCall, Recording, SceneDumper, remove_secrets, write_recording
from bot.scenes.scene import SceneError
from bot.store.protocols import Store

NAMES = ("Alice", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gwen", "Hugo", "Iris", "Jon", "Kim", "Leo", "Mia", "Noah")
ANSWER_KEY = "answer"
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
DECISIONS = {Rule.DECIDED_RESPOND: "RESPOND", Rule.DECIDED_IGNORE: "IGNORE", Rule.DECIDED_STOP: "STOP"}


@dataclass(frozen=True, slots=True)
class SceneSource:
    """Which stored messages become a scene: those up to a receipt, or the last of a room."""

    config: AgentConfig
    receipt: str
    room: str
    last: int


@dataclass(slots=True)
class FoundScene:
    """A scene made of stored messages: the content of its file, and its answers."""

    name: str
    document: dict[str, Any]
    answers: list[RecordedAnswer] = field(default_factory=list)


async def read_source(store: Store, source: SceneSource) -> FoundScene:
    """Return the scene of stored messages. Raises SceneError if there are none."""
    receipt = await _find_receipt(store, source.receipt) if source.receipt else None
    room = await _find_room(store, source.room) if receipt is None else await store.worlds.room(receipt.room_id)
    if room is None:
        raise SceneError(f"the room of {source.receipt} is not stored any more")
    messages = await store.memories.recent(room.id, source.last if receipt is None else 1_000)
    if receipt is not None:
        ids = [message.id for message in messages]
        if receipt.memory_id not in ids:
            raise SceneError(f"the message of {source.receipt} is not stored any more")
        end = ids.index(receipt.memory_id) + 1
        replies = [item for item in messages[end:] if item.content.in_reply_to == receipt.memory_id]
        messages = [*messages[max(0, end - source.last) : end], *replies]
    if not messages:
        raise SceneError(f"no message of the room {room.name or room.id} is stored")
    return await _Conversion(store, source.config, room, messages).convert()


async def _find_receipt(store: Store, name: str) -> Receipt:
    found = await store.ledger.receipt(UUID(name)) if _ID.fullmatch(name) else None
    receipts = [found] if found is not None else await store.ledger.receipts_by_message_id(name)
    if not receipts:
        raise SceneError(f"there is no receipt and no message {name!r}: `bot why` lists them")
    return receipts[-1]


async def _find_room(store: Store, name: str) -> Room:
    rooms = [room for room in await store.worlds.rooms() if name in (str(room.id), room.external_id, room.name)]
    if len(rooms) != 1:
        raise SceneError(f"{len(rooms)} rooms are called {name!r}: name one by its id, which `bot rooms list` shows")
    return rooms[0]


class _Conversion:
    def __init__(self, store: Store, config: AgentConfig, room: Room, messages: Sequence[Memory]) -> None:
        self._store, self._config, self._room, self._messages = store, config, room, messages
        self._ids = {message.id: f"m{number}" for number, message in enumerate(messages, 1)}
        self._names: dict[UUID, str] = {}
        self._new_names: dict[str, str] = {}  # by the old ones, without case
        self._pattern = re.compile(r"(?!)")  # finds the old ones
        self._known: set[str] = set()  # the ids of messages in the steps so far

    async def convert(self) -> FoundScene:
        agent_id, store = self._config.agent_id, self._store
        said = [message for message in self._messages if message.entity_id != agent_id]
        entities = await store.entities.entities({message.entity_id for message in said})
        self._choose_names([message.entity_id for message in said], entities)
        receipts = await store.lists.receipts_of([message.id for message in said])
        replies: dict[UUID, list[Memory]] = {}
        for message in self._messages:
            if message.entity_id == agent_id and message.content.in_reply_to is not None:
                replies.setdefault(message.content.in_reply_to, []).append(message)
                self._ids[message.id] = f"{self._ids.get(message.content.in_reply_to, '')}.reply"
        world = await store.worlds.world(self._room.world_id)
        people = {
            self._names[entity_id]: {
                "role": (world.role_of(entity_id) if world else Role.MEMBER).lower(),
                **({"bot": True} if entities[entity_id].is_bot else {}),
            }
            for entity_id in self._names
            if entity_id in entities
        }
        kind = "private" if self._room.type.is_direct else "feed" if self._room.type is ChannelType.FEED else "group"
        found = FoundScene(
            f"scene-{str(said[-1].id)[-8:] if said else self._room.id}",
            {
                "description": "Made by `bot scene from`: say what must hold, and change what is expected.",
                "character": "",
                "room": {"kind": kind, "platform": re.sub(r"[^a-z0-9_]", "_", self._room.platform.lower())},
                "people": people,
            },
        )
        steps: list[dict[str, Any]] = []
        previous: Memory | None = None
        for message in said:
            receipt = receipts.get(message.id)
            if receipt is not None and receipt.outcome is Outcome.SUPERSEDED:
                continue  # it was answered together with a later message
            if previous is not None and (minutes := (message.created_at - previous.created_at) // timedelta(minutes=1)):
                steps.append({"wait": f"{minutes}m"})
            previous = message
            steps.append(self._build_step(message, receipt, bool(replies.get(message.id))))
            self._known |= {self._ids[message.id], f"{self._ids[message.id]}.reply"}
            found.answers += await self._list_answers(len(steps), receipt, replies.get(message.id, ()))
        if not steps:
            raise SceneError("no person has written there")
        found.document["steps"] = steps
        return found

    def _build_step(self, message: Memory, receipt: Receipt | None, has_reply: bool) -> dict[str, Any]:
        content = message.content
        step: dict[str, Any] = {"say": self._rename(content.text), "by": self._names[message.entity_id]}
        step["id"] = self._ids[message.id]
        if target := self._find_target(content):
            step["reply_to"] = target
        if content.mention.is_mention:
            step["mention"] = True
        pictures = [item.description or item.title or item.name for item in content.attachments]
        if pictures:
            step["image"] = self._rename(" / ".join(filter(None, pictures)) or "a file")
        if receipt is not None and receipt.outcome in (Outcome.ANSWERED, Outcome.IGNORED):
            step["expect"] = "reply" if has_reply else "silence"
        return step

    def _find_target(self, content: Content) -> str:
        """Return the id of the message that a message replies to, if that is in the scene."""
        target = self._ids.get(content.in_reply_to, "") if content.in_reply_to is not None else ""
        return target if target in self._known else ""

    async def _list_answers(
        self, step: int, receipt: Receipt | None, replies: Iterable[Memory]
    ) -> list[RecordedAnswer]:
        """Return the answers of a step: those of its replay record, else of the journal or the texts that were sent."""
        if receipt is None:
            return []
        steps = await self._store.ledger.steps(receipt.turn_id) if receipt.turn_id else {}
        if (trace := steps.get(TRACE_KEY)) is not None and REPLAY_KEY in trace.result:
            with suppress(ValueError):  # another version wrote it
                return self._list_recorded(step, ReplayRecord.decode(trace.result[REPLAY_KEY]))
        answers = []
        if decision := next((word for rule, word in DECISIONS.items() if receipt.rule == rule), ""):
            answers.append(RecordedAnswer(step=step, purpose=Purpose.SHOULD_RESPOND, answer=decision))
        journalled = steps.get(ANSWER_KEY)
        if journalled is not None and "raw" in journalled.result:
            calls = [
                RecordedCall(name=str(call["name"]), arguments=self._rename_all(call["arguments"]))
                for call in journalled.result.get("calls", ())
            ]
            text = self._rename(str(journalled.result["raw"]))
            answers.append(RecordedAnswer(step=step, answer=text, calls=tuple(calls)))
        elif texts := [self._rename(reply.content.text) for reply in replies]:
            answers.append(RecordedAnswer(step=step, answer="\n".join(texts)))
        return answers

    def _list_recorded(self, step: int, record: ReplayRecord) -> list[RecordedAnswer]:
        counts: Counter[str] = Counter()
        answers = []
        for item in record.answers:
            counts[item.purpose] += 1
            if not item.error:
                calls = [RecordedCall(name=name, arguments=self._rename_all(given)) for name, given in item.calls]
                answers.append(
                    RecordedAnswer(
                        step=step,
                        purpose=Purpose(item.purpose),
                        call=counts[item.purpose],
                        answer=self._rename(item.text),
                        calls=tuple(calls),
                    )
                )
        return answers

    def _choose_names(self, people: Sequence[UUID], entities: dict[UUID, Entity]) -> None:
        """Choose another name for each person, and find all of theirs in texts: longer ones first."""
        own = self._config.character.name.casefold()
        free = [name for name in NAMES if name.casefold() != own]
        found: dict[str, str] = {}
        for number, entity_id in enumerate(dict.fromkeys(people)):
            name = free[number] if number < len(free) else f"Person {number + 1}"
            self._names[entity_id] = name
            entity = entities.get(entity_id)
            for old in (*entity.names, entity.external_id) if entity is not None else ():
                parts = [part.casefold() for part in (old, *(part for part in old.split() if len(part) > 2)) if part]
                found |= {part: name for part in parts if part != own and part not in found}
        if found:
            self._new_names = found
            listed = "|".join(re.escape(old) for old in sorted(found, key=len, reverse=True))
            self._pattern = re.compile(rf"(?<!\w)(?:{listed})(?!\w)", re.IGNORECASE)

    def _rename(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._new_names.get(match[0].casefold(), "Person"), text)

    def _rename_all(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._rename(value)
        if isinstance(value, dict):
            return {name: self._rename_all(item) for name, item in value.items()}
        return [self._rename_all(item) for item in value] if isinstance(value, list) else value


def write_scene(path: Path, found: FoundScene, character: Path, secrets: Collection[str]) -> list[Path]:
    """Write a scene and its answers, and return their paths. Raises ConfigError; no file is replaced."""
    found.document["character"] = os.path.relpath(character.resolve(), path.resolve().parent)
    text = yaml.dump(
        remove_secrets(found.document, secrets), Dumper=SceneDumper, sort_keys=False, allow_unicode=True, width=110
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        recording = Recording(written_by="model", answers=tuple(found.answers))
        return [path, *([write_recording(path, recording, secrets)] if found.answers else [])]
    except FileExistsError:
        raise ConfigError(f"{path}: there is such a file already: name another one with --to") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
