"""Model handlers of the offline responder: they parse the prompt and answer in the expected tags."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape

from bot import ActionSpec, Agent, model
from bot.models import EmbeddingRequest, EmbeddingResult, ModelType, Purpose, TextRequest, TextResult, Usage
from bot.prompts import CARE_RULE, parse_history
from bot.text import current_language
from plugins.offline.input_analysis import ChatLine, embed
from plugins.offline.phrasing import content_words
from plugins.offline.responder import (
    Persona,
    asks_what_was_said,
    quote_statement,
    respond,
    respond_with_care,
    should_respond,
    write_post,
)

MODEL_NAME = "offline"
NO_USAGE = Usage()
MAX_BRACKETS = 100  # of a typed value: a decoder at the end of the stack makes finalizers of other objects fail
RECALL = "RECALL"  # the provider of what was said before
SPEECH_ACTIONS = frozenset({"REPLY", "IGNORE", "NONE"})
_RESULT_LINE = re.compile(r"^- [A-Z][A-Z0-9_]*: (?P<outcome>ok|failed): (?P<text>.*)$", re.MULTILINE)
_QUOTED_LINE = re.compile(
    r'^- (?P<name>[^()\[\]\n]+) \(id (?P<id>[0-9a-f]+)\), [0-9-]+ [0-9:]+: "(?P<text>.*)"(?: \([^()\n]*\))*?'
    r"(?P<latest> \(the latest of these\))?$",
    re.MULTILINE,
)  # of the provider RECALL
_GIVEN_PARAMETERS = re.compile(r"^What was given: (\{.*\})$", re.MULTILINE)


@model(ModelType.TEXT_LARGE)
async def generate_text(agent: Agent, request: TextRequest) -> TextResult:
    """Answer a text request from patterns."""
    persona = _build_persona(agent)
    parsed = parse_history(request.prompt)
    history = [ChatLine(line.name, line.text, line.is_agent) for line in parsed]
    if request.purpose is Purpose.SHOULD_RESPOND:
        decision = "RESPOND" if should_respond(history, persona) else "IGNORE"
        return _text_result(f"<response><reasoning>by pattern</reasoning><action>{decision}</action></response>")
    if request.purpose is Purpose.REPAIR:  # nothing is corrected: the caller then tells what is wrong with it
        given = _GIVEN_PARAMETERS.search(request.prompt)
        return _text_result(given[1] if given else "{}")
    if request.purpose is Purpose.CARE:  # a pattern cannot do better than the phrase that was found
        return _text_result("unknown")
    if request.purpose in (Purpose.REFLECTION, Purpose.ROOM_SUMMARY):  # a pattern cannot write one
        return _text_result("<response></response>" if request.purpose is Purpose.REFLECTION else "")
    if request.purpose is Purpose.STEP:
        return _text_result("<response><action></action><isFinish>true</isFinish></response>")
    if request.purpose is Purpose.POST:
        recent = [line.text for line in history if line.is_agent]
        post_text = escape(write_post(persona, seed=_read_seed(agent), recent=recent))
        return _text_result(f"<response><post>{post_text}</post></response>")
    if request.purpose is Purpose.SUMMARY and (results := _RESULT_LINE.findall(request.prompt)):
        lines = [text if outcome == "ok" else f"That did not work: {text}" for outcome, text in results]
        return _text_result(f"<response><text>{escape(' '.join(lines))}</text></response>")
    if request.purpose is Purpose.REPLY and (call := find_call(history, agent.catalog.actions)):
        return _text_result(call)
    wanted, is_care = "", CARE_RULE in request.system
    reply_text = _write_reply(agent, persona, history, is_care=is_care)
    if not is_care and request.purpose is Purpose.REPLY and parsed and asks_what_was_said(history, persona):
        recalled = _read_recalled(request.prompt, {line.id: line.name for line in parsed})
        reply_text = quote_statement(recalled, parsed[-1].text, parsed[-1].name, persona) or reply_text
        wanted = "" if recalled else RECALL
    return _text_result(
        f"<response><thought>by pattern</thought><actions>REPLY</actions><providers>{wanted}</providers>"
        f"<text>{escape(reply_text)}</text></response>"
    )


def _write_reply(agent: Agent, persona: Persona, history: Sequence[ChatLine], *, is_care: bool) -> str:
    language = current_language()
    if is_care:
        return respond_with_care(history, language=language)
    return respond(history, persona, seed=_read_seed(agent), language=language)


def _read_recalled(prompt: str, names: Mapping[str, str]) -> list[ChatLine]:
    """Return the lines of people that RECALL quotes in a prompt, with the names that their ids have now.

    If the latest line on a topic is marked, and shares author and words with the first, it comes before that.
    """
    quoted = list(_QUOTED_LINE.finditer(prompt))
    latest = [
        line
        for line in quoted
        if line["latest"]
        and line["id"] == quoted[0]["id"]
        and content_words(line["text"]) & content_words(quoted[0]["text"])
    ]
    return [
        ChatLine(names.get(line["id"], line["name"]), line["text"], is_agent=False)
        for line in dict.fromkeys([*latest[:1], *quoted])
    ]


@model(ModelType.TEXT_EMBEDDING)
async def embed_texts(agent: Agent, request: EmbeddingRequest) -> EmbeddingResult:
    """Return hashed n-gram vectors, comparable with each other by cosine."""
    vectors = tuple(tuple(embed(item)) for item in request.texts)
    return EmbeddingResult(vectors, f"{MODEL_NAME}-ngrams-384", NO_USAGE)


def find_call(history: Sequence[ChatLine], actions: Iterable[ActionSpec]) -> str:
    """Return an answer that calls the action with whose name the last line begins; empty if it begins with none.

    `ROLL_DICE sides=20` passes an argument; one with spaces stands in quotation marks. This is how an action is
    tried without a language model.
    """
    if not history or history[-1].is_agent:
        return ""
    line = history[-1].text.strip()
    name, _, rest = line.partition(" ")
    spec = next((spec for spec in actions if spec.name == name and name not in SPEECH_ACTIONS), None)
    if spec is None:
        return ""
    try:
        pairs = [word.partition("=") for word in shlex.split(rest)]
    except ValueError:  # a quotation mark that is not closed
        return ""
    if not all(key.isidentifier() and sign for key, sign, _ in pairs):
        return ""
    schemas = spec.parameters.get("properties", {})
    arguments = {key: _read_value(value, schemas.get(key, {})) for key, _, value in pairs}
    return (
        f"<response><thought>named by its sender</thought><actions>{name}</actions>"
        f"<parameters><{name}>{escape(json.dumps(arguments))}</{name}></parameters><text></text></response>"
    )


def _read_value(text: str, schema: Mapping[str, Any]) -> object:
    """Return a number, a list or any other JSON value as what it is, everything else as text."""
    if schema.get("type") == "string" or text.count("[") + text.count("{") > MAX_BRACKETS:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_seed(agent: Agent) -> int:
    return int(agent.settings.get("OFFLINE_SEED") or 0)


def _build_persona(agent: Agent) -> Persona:
    character = agent.character
    pairs = [
        (first.content.text, second.content.text)
        for example in character.message_examples
        for first, second in pairwise(example)
        if first.name != character.name and second.name in (character.name, "{{agentName}}", "{{agent}}")
    ]
    return Persona(
        character.name,
        character.topics,
        character.adjectives,
        character.background,
        tuple(pairs),
        tuple(character.post_examples),
    )


def _text_result(text: str) -> TextResult:
    return TextResult(text, MODEL_NAME, NO_USAGE)
