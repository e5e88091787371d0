"""Makes a scene and its answers of stored messages; people get other names, the same everywhere.

The messages before those that the scene is about are its history: they are there as they were, and nothing is decided
about them. A new scene is run before it is written; a turn that does not end as it did becomes history too.
"""

import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import yaml

from bot.domain.character import Effect
from bot.domain.content import Content
from bot.domain.environment import ChannelType, Entity, ParticipantState, Role, Room
from bot.domain.ledger import Outcome, Receipt, Rule, Step
from bot.domain.memory import PROGRESS_KEY, REFERRAL_KEY, WRITTEN_BY_KEY, Memory
from bot.errors import ConfigError
from bot.models.types import Purpose
from bot.operate.conversations import ConversationReader
from bot.plugin_system.loading import PluginPurpose, bundled_names
from bot.receipts import REPLAY_KEY, TRACE_KEY, ReplayRecord
from bot.runtime.character_reload import AgentConfig
from bot.scenes.recording import RecordedAnswer, RecordedCall, Recording, SceneDumper, remove_secrets, write_recording
from bot.scenes.runner import LoadConfig, SceneOptions, SceneReport, run_scene
from bot.scenes.scene import SceneError
from bot.store.protocols import Store
from bot.text import shorten

NAMES = ("Alice", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gwen", "Hugo", "Iris", "Jon", "Kim", "Leo", "Mia", "Noah")
ANSWER_KEY = "answer"
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
DECISIONS = {Rule.DECIDED_RESPOND: "RESPOND", Rule.DECIDED_IGNORE: "IGNORE", Rule.DECIDED_STOP: "STOP"}
HISTORY_LENGTH = 60  # messages: as many as the estimate of who is meant looks at
MAX_STORED = 1_000  # messages of the room, among which that of a receipt is looked for
MAX_SINGLE_RUNS = 20  # in which one turn after another becomes history; then all that fail do at once
# What decides about a message, beside the character: the values of the settings of this machine go into the scene.
SETTINGS = (
    "RESPONSIVENESS",
    "RESPOND_TO_BOTS",
    "SHOULD_RESPOND_BYPASS_TYPES",
    "SHOULD_RESPOND_BYPASS_SOURCES",
    "USE_MULTI_STEP",
    "MODEL_ANSWER_FORM",
    "CONVERSATION_LENGTH",
)


@dataclass(frozen=True, slots=True)
class SceneSource:
    """Which stored messages become a scene: that of a receipt, or the `last` of a room.

    `config` is that of the agent that processed them. The scene is of the character in the file `character`, which
    `load_config` loads as `bot scene run` does. `history` is the number of messages before them.
    """

    config: AgentConfig
    character: Path
    load_config: LoadConfig
    receipt: str = ""
    room: str = ""
    last: int = 1
    history: int = HISTORY_LENGTH


@dataclass(slots=True)
class FoundScene:
    """A scene made of stored messages: the content of its file, and its answers.

    `notes` say which turns are not expected, and why.
    """

    name: str
    document: dict[str, Any]
    recording: Recording
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Line:
    """A message of the scene. With a `reason` it is history, blank for one that was never to be expected.

    `step` is the number of its step in the scene that was built last; `record` is that of its turn.
    """

    memory: Memory
    receipt: Receipt | None = None
    replies: list[Memory] = field(default_factory=list)
    reason: str | None = None
    record: ReplayRecord | None = None
    answers: list[RecordedAnswer] = field(default_factory=list)
    step: int = 0


async def read_source(store: Store, source: SceneSource) -> FoundScene:
    """Return the scene of stored messages, which passes as it is. Raises SceneError if there are none."""
    receipt = await _find_receipt(store, source.receipt) if source.receipt else None
    room = await _find_room(store, source.room) if receipt is None else await store.worlds.room(receipt.room_id)
    if room is None:
        raise SceneError(f"the room of {source.receipt} is not stored any more")
    count = source.last + source.history if receipt is None else MAX_STORED
    messages = list(await store.memories.recent(room.id, count))
    begin = max(0, len(messages) - source.last)
    if receipt is not None:
        ids = [message.id for message in messages]
        if receipt.memory_id not in ids:
            raise SceneError(f"the message of {source.receipt} is not stored any more")
        begin = ids.index(receipt.memory_id)
        replies = [item for item in messages[begin + 1 :] if item.content.in_reply_to == receipt.memory_id]
        messages = [*messages[max(0, begin - source.history) : begin + 1], *replies]
        begin = min(begin, source.history)
    if not any(message.entity_id != source.config.agent_id for message in messages[begin:]):
        raise SceneError(f"no message of a person in the room {room.name or room.id} is stored")
    conversion = _Conversion(store, source, room, messages, begin)
    await conversion.read()
    return await conversion.make()


async def _find_receipt(store: Store, name: str) -> Receipt:
    found = await store.ledger.receipt(UUID(name)) if _ID.fullmatch(name) else None
    receipts = [found] if found is not None else await store.ledger.receipts_by_message_id(name)
    if not receipts:
        raise SceneError(f"there is no receipt and no message {name!r}: `bot why` lists them")
    receipt = receipts[-1]
    while receipt.superseded_by is not None:  # it was answered together with a later message
        later = (await store.lists.receipts_of([receipt.superseded_by])).get(receipt.superseded_by)
        if later is None or later.id == receipt.id:
            break
        receipt = later
    return receipt


async def _find_room(store: Store, name: str) -> Room:
    rooms = await ConversationReader(store).find_rooms(name)
    if len(rooms) != 1:
        raise SceneError(f"{len(rooms)} rooms are called {name!r}: name one by its id, which `bot rooms list` shows")
    return rooms[0]


class _Conversion:
    """Messages that become a scene: those from the number `begin` on are to be expected."""

    def __init__(self, store: Store, source: SceneSource, room: Room, messages: Sequence[Memory], begin: int) -> None:
        self._store, self._source, self._room, self._messages = store, source, room, messages
        self._agent_id, self._begin = source.config.agent_id, begin
        self._ids = {message.id: f"m{number}" for number, message in enumerate(messages, 1)}
        self._texts = {message.id: message.content.text for message in messages}
        self._external_ids = {message.external_id: message.id for message in messages if message.external_id}
        self._names: dict[UUID, str] = {}
        self._new_names: dict[str, str] = {}  # by the old ones, without case
        self._pattern = re.compile(r"(?!)")  # finds the old ones
        self._lines: list[_Line] = []
        self._people: dict[str, Any] = {}
        self._state = ParticipantState.DEFAULT
        self._isolated = source.load_config(source.character)

    async def read(self) -> None:
        """Read what belongs to the messages: their authors, receipts, replies and recorded answers."""
        store, said = self._store, [item for item in self._messages if item.entity_id != self._agent_id]
        entities = await store.entities.entities({message.entity_id for message in said})
        self._choose_names([message.entity_id for message in said], entities)
        world = await store.worlds.world(self._room.world_id)
        self._people = {
            self._names[entity_id]: {
                "role": (world.role_of(entity_id) if world else Role.MEMBER).lower(),
                **({"bot": True} if entities[entity_id].is_bot else {}),
            }
            for entity_id in self._names
            if entity_id in entities
        }
        receipts = await store.lists.receipts_of([message.id for message in said])
        self._state = await store.worlds.participant_state(self._room.id)
        by_id: dict[UUID, _Line] = {}
        for number, message in enumerate(self._messages):
            answered = by_id.get(message.content.in_reply_to) if message.content.in_reply_to is not None else None
            is_own = message.entity_id == self._agent_id
            if PROGRESS_KEY in message.metadata or (is_own and REFERRAL_KEY in message.metadata):
                continue
            is_answer = is_own and answered is not None and WRITTEN_BY_KEY not in message.metadata
            if is_answer and answered is not None:
                answered.replies.append(message)
            line = by_id[message.id] = _Line(message, receipts.get(message.id))
            self._lines.append(line)
            if is_own or number < self._begin:
                line.reason = ""
            else:
                await self._read_turn(line)

    async def _read_turn(self, line: _Line) -> None:
        """Read what was recorded of the turn of a message, and whether it can be expected."""
        receipt = line.receipt
        if receipt is None:
            line.reason = "no decision about it is stored"
        elif receipt.outcome is Outcome.SUPERSEDED:
            line.reason = ""  # it was answered together with a later message
        elif receipt.outcome not in (Outcome.ANSWERED, Outcome.IGNORED):
            line.reason = f"it has {receipt.outcome} ({receipt.rule}): {receipt.reason}"
            line.reason = line.reason.replace("it has failed", "it failed")
        if receipt is None or line.reason is not None:
            return
        steps = await self._store.ledger.steps(receipt.turn_id) if receipt.turn_id else {}
        if (trace := steps.get(TRACE_KEY)) is not None and REPLAY_KEY in trace.result:
            with suppress(ValueError):  # another version wrote it
                line.record = ReplayRecord.decode(trace.result[REPLAY_KEY])
        if line.record is not None:
            self._state = line.record.participant_state
            line.answers = self._list_recorded(line.record)
        else:
            line.answers = self._list_journalled(line, steps.get(ANSWER_KEY))
        for name, effect in self._list_actions(line).items():
            if not self._may_run(name, effect):
                line.reason = f"it ran the action {name}, which a scene would run again"

    def _list_actions(self, line: _Line) -> dict[str, Effect]:
        """Return the actions that a turn has run, with their effects."""
        actions = line.record.actions if line.record is not None else ()
        return {action.name: action.effect for action in actions if action.success}

    def _may_run(self, name: str, effect: Effect) -> bool:
        """Return whether an action may run once more: it is harmless, or it changes nothing but the store in memory."""
        own = (plugin for plugin in self._source.config.plugins if plugin.name in bundled_names(PluginPurpose.BASE))
        return effect is Effect.PURE or any(action.spec.name == name for plugin in own for action in plugin.actions)

    async def make(self) -> FoundScene:
        """Return the scene, in which turns are history that do not end in it as they did."""
        for run in range(len(self._lines) + 1):
            found = self._build()
            report = await _check(found, self._source, self._isolated)
            if report.outcome == "passed":
                found.recording = report.answers
                break
            if report.error:
                raise SceneError(f"the scene cannot be run: {report.error}")
            failed = {failure.step: failure.message for failure in reversed(report.failures)}
            lines = [line for line in self._lines if line.reason is None and line.step in failed]
            if not lines:
                raise SceneError(f"the scene does not pass: {report.failures[0].message}")
            for line in lines[: 1 if run < MAX_SINGLE_RUNS else None]:
                assert line.receipt is not None, "an expected turn has a receipt"
                was = f"it was {line.receipt.outcome} by the rule {line.receipt.rule}"
                line.reason = f"{was}; in the scene, {failed[line.step].partition(';')[0]}"
        found.notes = [
            f"{self._describe(line.memory)} is history in this scene, and not expected: {line.reason}"
            for line in self._lines
            if line.reason
        ]
        return found

    def _build(self) -> FoundScene:
        kind = "private" if self._room.type.is_direct else "feed" if self._room.type is ChannelType.FEED else "group"
        platform = re.sub(r"[^a-z0-9_]", "_", self._room.platform.lower())
        room = {"kind": kind, "platform": platform, "state": self._state.lower()}
        last = self._messages[-1] if self._begin == len(self._messages) - 1 else self._messages[self._begin]
        document: dict[str, Any] = {
            "description": "Made of what happened: say what must hold, and change what is expected.",
            "character": "",
            "room": {name: value for name, value in room.items() if value != "default"},
            "people": self._people,
        }
        changed = {name: self._source.config.settings.get(name) for name in SETTINGS}
        settings = {
            name: value for name, value in changed.items() if value and value != self._isolated.settings.get(name)
        }
        document |= {"settings": settings} if settings else {}
        steps: list[dict[str, Any]] = []
        answers: list[RecordedAnswer] = []
        expected: set[UUID] = set()  # messages whose replies the scene gives itself
        known: dict[UUID, str] = {}
        previous: Memory | None = None
        for line in self._lines:
            memory = line.memory
            if memory.content.in_reply_to in expected and memory.entity_id == self._agent_id:
                known[memory.id] = f"{known[memory.content.in_reply_to]}.reply"
                continue
            step = self._build_step(line, known)
            if previous is not None:
                seconds = max(0.0, (memory.created_at - previous.created_at).total_seconds())
                step["after"] = f"{round(seconds, 1):.10g}s"
            previous = memory
            known[memory.id] = step["id"]
            steps.append(step)
            line.step = len(steps)
            if line.reason is None:
                expected.add(memory.id)
                answers += [answer.model_copy(update={"step": line.step}) for answer in line.answers]
        document["steps"] = steps
        tools = any(answer.tools for line in self._lines if line.record for answer in line.record.answers)
        has_records = any(line.record is not None for line in self._lines)
        recording = Recording(written_by="model", tools=tools or not has_records, answers=tuple(answers))
        return FoundScene(f"scene-{str(last.id)[-8:]}", document, recording)

    def _build_step(self, line: _Line, known: dict[UUID, str]) -> dict[str, Any]:
        memory, content = line.memory, line.memory.content
        is_own = memory.entity_id == self._agent_id
        step: dict[str, Any] = {"say" if line.reason is None else "history": self._rename(content.text)}
        if not is_own:
            step["by"] = self._names[memory.entity_id]
        step["id"] = self._ids[memory.id]
        if target := self._find_target(content, known):
            step["to" if is_own else "reply_to"] = target
        if content.mention.is_mention or (content.mention.is_reply and not target):
            step["mention"] = True
        pictures = [item.description or item.title or item.name for item in content.attachments]
        if pictures and not is_own:
            step["image"] = self._rename(" / ".join(filter(None, pictures)) or "a file")
        receipt = line.receipt
        if line.reason is not None:
            decided = _find_decision(receipt) if receipt is not None else ""
            return {**step, "decided": decided} if decided else step
        actions = [f"action {name}" for name in self._list_actions(line)]
        outcome = "reply" if line.replies else "silence"
        step["expect"] = [outcome, *actions] if actions else outcome
        text = "\n".join(self._rename(reply.content.text) for reply in line.replies)
        if text:
            step["assert"] = [{"equals": text}]
        elif receipt is not None and not line.replies:
            step["assert"] = [{"rule": receipt.rule}]
        return step

    def _find_target(self, content: Content, known: dict[UUID, str]) -> str:
        """Return the id of the message that a message replies to, or of its author's last one, if that is not there."""
        mention, quotation = content.mention, content.quotation
        message_id = content.in_reply_to or self._external_ids.get(quotation.message_id if quotation else "")
        if message_id in known:
            return known[message_id]
        author_id = self._agent_id if mention.is_reply else mention.replies_to
        own = [line.memory.id for line in self._lines if line.memory.entity_id == author_id and line.memory.id in known]
        quoted = [item for item in own if quotation is not None and self._texts[item] == quotation.text]
        return known[(quoted or own)[-1]] if own else ""

    def _list_journalled(self, line: _Line, journalled: Step | None) -> list[RecordedAnswer]:
        """Return the answers of a turn without a replay record: those of the journal, else the texts that were sent."""
        answers = []
        assert line.receipt is not None, "a turn that is read has a receipt"
        if decision := next((word for rule, word in DECISIONS.items() if line.receipt.rule == rule), ""):
            answers.append(RecordedAnswer(step=1, purpose=Purpose.SHOULD_RESPOND, answer=decision))
        if journalled is not None and "raw" in journalled.result:
            calls = [
                RecordedCall(name=str(call["name"]), arguments=self._rename_all(call["arguments"]))
                for call in journalled.result.get("calls", ())
            ]
            text = self._rename(str(journalled.result["raw"]))
            answers.append(RecordedAnswer(step=1, answer=text, calls=tuple(calls)))
        elif texts := [self._rename(reply.content.text) for reply in line.replies]:
            answers.append(RecordedAnswer(step=1, answer="\n".join(texts)))
        return answers

    def _list_recorded(self, record: ReplayRecord) -> list[RecordedAnswer]:
        counts: Counter[str] = Counter()
        answers = []
        for item in record.answers:
            if item.error:
                continue
            counts[item.purpose] += 1
            calls = [RecordedCall(name=name, arguments=self._rename_all(given)) for name, given in item.calls]
            answers.append(
                RecordedAnswer(
                    step=1,
                    purpose=Purpose(item.purpose),
                    call=counts[item.purpose],
                    answer=self._rename(item.text),
                    calls=tuple(calls),
                )
            )
        return answers

    def _describe(self, memory: Memory) -> str:
        text = shorten(self._rename(memory.content.text), 60)
        return f"{self._ids[memory.id]} ({self._names[memory.entity_id]}: {text})"

    def _choose_names(self, people: Sequence[UUID], entities: dict[UUID, Entity]) -> None:
        """Choose another name for each person, and find all of theirs in texts: longer ones first."""
        own = self._source.config.character.name.casefold()
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


def _find_decision(receipt: Receipt) -> str:
    """Return what a model has decided about a message: `respond` or `ignore`; blank if none was asked."""
    if not any(call.purpose == Purpose.SHOULD_RESPOND for call in receipt.model_calls):
        return ""
    if receipt.rule in (Rule.DECIDED_IGNORE, Rule.DECIDED_NONE, Rule.DECIDED_STOP):
        return "ignore"
    return "" if receipt.rule in (Rule.DECISION_UNREADABLE, Rule.DECISION_FAILED) else "respond"


async def _check(found: FoundScene, source: SceneSource, config: AgentConfig) -> SceneReport:
    """Run a scene that is not written yet, as `bot scene run` will."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scene.yaml"
        write_scene(path, found, source.character, source.config.secrets)
        return await run_scene(path, lambda _: config, SceneOptions())


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
        return [path, *([write_recording(path, found.recording, secrets)] if found.recording.answers else [])]
    except FileExistsError:
        raise ConfigError(f"{path}: there is such a file already: name another one with --to") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
