"""Confirmation of a change by its author, with a button, a code or, in a private chat, an answer."""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bot.agent import Agent
from bot.domain.choices import ChoiceRequest
from bot.domain.content import Content
from bot.domain.environment import Room
from bot.domain.ids import derived_id
from bot.domain.memory import Memory
from bot.domain.results import ActionResult
from bot.domain.task import Task, TaskTag
from bot.text import sanitize_name
from bot.turn import Turn
from bot.user_texts import user_phrases, user_text

CONFIRM = "confirm"
CONFIRMED_WORKER = "RUN_CONFIRMED_ACTION"
CONFIRMATION_TTL = timedelta(minutes=10)
CODE_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LENGTH = 5
MAX_CONFIRMATION_LENGTH = 200
MAX_WORDS_BEFORE = 3  # of a message that only confirms: whom it is for, and a greeting
MAX_SCANNED_MESSAGES = 20  # newer ones than the question
MAX_QUOTED_LENGTH = 100  # of a question that is replied to
_CODE = rf"[{CODE_ALPHABET}]{{{CODE_LENGTH}}}"
_CONFIRMATION = re.compile(rf"\W*(?:\S+\s+){{0,{MAX_WORDS_BEFORE}}}{CONFIRM}\s+({_CODE})\W*", re.IGNORECASE)
_TOKEN = re.compile(r"\w+|[👍👎✅❌]")
_MENTION = re.compile(r"<@[!&]?\w+>|@\w+")
_IS_CODE = re.compile(_CODE, re.IGNORECASE)
_QUESTION = re.compile("[?？¿؟]")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a message says that does nothing else than answer a question: yes, no, or a code."""

    is_yes: bool = False
    is_no: bool = False
    code: str = ""


async def ask_to_confirm(
    turn: Turn, worker: str, operation: Mapping[str, str], summary: str, *, needs_code: bool = False
) -> ActionResult:
    """Ask the author to confirm `summary` with a button or a code; then `worker` runs the operation.

    In a private chat, unless it `needs_code`, a message that only says yes confirms too, in any language of the
    catalogue, and so does a thumbs-up on the question. Each user has at most one pending operation in a room; a newer
    one replaces it. The worker finds it as `operation` of the task's `ChoiceRequest`, and who confirmed it as its
    `chooser`.
    """
    agent, author = turn.agent, turn.author
    tasks, now = agent.store.tasks, agent.clock()
    task_id = derived_id(turn.id, "confirmation", str(turn.next_reply_index))
    for earlier in await tasks.tasks(room_id=turn.room.id, entity_id=author.id, tags={TaskTag.AWAITING_CHOICE}):
        if earlier.id != task_id and ChoiceRequest.from_metadata(earlier.metadata).code:
            await tasks.delete_task(earlier.id)
    code = _encode_code(derived_id(task_id, str(author.id)).int)
    request = ChoiceRequest(
        (CONFIRM,),
        choosers=(str(author.id),),
        code=code,
        expires_at=now + CONFIRMATION_TTL,
        operation=operation,
        question=turn.peek_reply().memory.id,
        needs_code=needs_code,
    )
    task = Task(
        task_id,
        worker,
        now,
        summary,
        turn.room.id,
        turn.world.id,
        author.id,
        tags=frozenset({TaskTag.AWAITING_CHOICE}),
        metadata=request.to_metadata(),
    )
    if await tasks.task(task_id) is None:  # after a crash it may be there, and chosen
        await tasks.save_task(task)
    question = user_text(
        "choices.confirm_directly" if turn.room.type.is_direct and not needs_code else "choices.confirm",
        summary=summary,
        author=sanitize_name(author.name),
        agent=sanitize_name(agent.name),
        word=CONFIRM,
        code=code,
    )
    await turn.reply(Content(text=question, choices=request.choices(task_id)))
    return ActionResult(text="asked for confirmation; nothing has been changed yet", authors=frozenset())


def read_answer(text: str, names: Iterable[str] = ()) -> Answer:
    """Return what a message answers that only confirms or declines something; an empty Answer for any other.

    Beside the answer it may have polite words and these names, of whom it is for. What asks something is no answer.
    """
    if len(text) > MAX_CONFIRMATION_LENGTH or _QUESTION.search(text):
        return Answer()
    yes, no = user_phrases("choices.yes"), user_phrases("choices.no")
    kinds = {
        _split(phrase): kind for kind, phrases in (("other", names), ("yes", yes), ("no", no)) for phrase in phrases
    }
    kinds |= {_split(phrase): "polite" for phrase in user_phrases("choices.polite")}
    found = list(_find_kinds(_split(_MENTION.sub(" ", text)), kinds))
    codes = [value for kind, value in found if kind == "code"]
    known = {kind for kind, _ in found}
    if (confirmation := _CONFIRMATION.fullmatch(text)) and "no" not in known:
        return Answer(code=confirmation[1].upper())
    if "unknown" in known or len(codes) > 1 or {"yes", "no"} <= known:
        return Answer()
    return Answer("yes" in known, "no" in known, codes[0].upper() if codes and "no" not in known else "")


def _find_kinds(words: tuple[str, ...], kinds: Mapping[tuple[str, ...], str]) -> Iterator[tuple[str, str]]:
    """Yield the kinds of the phrases of a message, the longest first, each with its text."""
    longest = max(map(len, kinds), default=0)
    position = 0
    while position < len(words):
        lengths = range(min(longest, len(words) - position), 0, -1)
        length = next((length for length in lengths if words[position : position + length] in kinds), 1)
        phrase = words[position : position + length]
        is_code = phrase not in kinds and _IS_CODE.fullmatch(phrase[0]) is not None
        yield "code" if is_code else kinds.get(phrase, "unknown"), " ".join(phrase)
        position += length


def _split(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(unicodedata.normalize("NFKC", text).casefold()))


async def find_answered_task(turn: Turn) -> tuple[Task, str] | None:
    """Return the task that the author was asked to confirm here and its option, if the turn's message only answers.

    A code answers in any room; yes and no answer in a private chat, the newest thing that was said or replied to.
    """
    if len(turn.inputs) > 1:
        return None
    answer = read_answer(turn.own_text, (turn.agent.name, *turn.agent.name.split()))
    if answer == Answer():
        return None
    agent = turn.agent
    tasks, tags = agent.store.tasks, {TaskTag.AWAITING_CHOICE}
    for task in await tasks.tasks(room_id=turn.room.id, entity_id=turn.author.id, tags=tags):
        request = ChoiceRequest.from_metadata(task.metadata)
        if not request.code or not request.is_open(task, agent.clock()):
            continue
        if answer.code:
            return (task, CONFIRM) if answer.code == request.code else None
        if turn.room.type.is_direct and await _answers_question(turn, request):
            if answer.is_no:
                return task, ChoiceRequest.ABORT
            return None if request.needs_code else (task, CONFIRM)
    return None


async def find_liked_task(agent: Agent, reaction: Memory, room: Room) -> Task | None:
    """Return the task that the author of a reaction confirms by it: with a thumbs-up on its question, in private."""
    if not (room.type.is_direct and read_answer(reaction.content.text).is_yes):
        return None
    tags = {TaskTag.AWAITING_CHOICE}
    for task in await agent.store.tasks.tasks(room_id=room.id, entity_id=reaction.entity_id, tags=tags):
        request = ChoiceRequest.from_metadata(task.metadata)
        is_asked = request.question is not None and request.question == reaction.content.in_reply_to
        if is_asked and not request.needs_code and request.is_open(task, agent.clock()):
            return task
    return None


async def _answers_question(turn: Turn, request: ChoiceRequest) -> bool:
    """Return whether the question is what the message replies to, or in the last answer of the agent."""
    recent = await turn.agent.store.memories.recent(turn.room.id, MAX_SCANNED_MESSAGES)
    own = [memory for memory in recent if memory.entity_id == turn.agent.id]
    quotation = turn.message.content.quotation
    if quotation is not None:
        quoted = "".join(_split(quotation.text))[:MAX_QUOTED_LENGTH]
        own = [memory for memory in own if quoted and quoted in "".join(_split(memory.content.text))]
    return any(memory.id == request.question for memory in own if memory.turn_id == own[-1].turn_id)


def confirmed_operation(turn: Turn, action: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the operation of a task that runs an action with exactly these arguments."""
    values = json.dumps(arguments, ensure_ascii=False, default=str)
    return {"action": action, "arguments": values, "message": str(turn.message.id)}


def _encode_code(number: int) -> str:
    """Encode a number in letters that are not confused with others."""
    return "".join(CODE_ALPHABET[(number >> 5 * position) % len(CODE_ALPHABET)] for position in range(CODE_LENGTH))
