"""The recorded forms in which models write: each is read as it was meant, whole and while it is written."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.outbound.content_filter import remove_markup
from bot.prompts.reply_parser.reader import AnswerContext, AnswerForm, partial_reply_text, read_reply

FORMS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("forms.toml").read_text("utf-8"))["form"]
ACTIONS = ("telltide", "calltaxi")
HIDDEN = re.compile(r"SECRET\w*")
STEP = 7  # characters between two pieces
KEPT = [form for form in FORMS if form["name"].startswith(("kept-", "prose-")) and "(id " not in form["raw"]]


def context_of(form: dict[str, Any]) -> AnswerContext:
    requested = AnswerForm(form.get("requested", "tags"))
    return AnswerContext(requested, "Marlo", ("Ann", "Kim", "User"), frozenset(ACTIONS))


def is_offered(name: str) -> bool:
    return name.replace("_", "").casefold() in ACTIONS


def test_the_corpus_is_large_enough() -> None:
    assert len(FORMS) >= 1200
    assert len({form["name"] for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=[form["name"] for form in FORMS])
def test_a_form_is_read_as_it_was_meant_whole_and_while_it_is_written(form: dict[str, Any]) -> None:
    check_whole(form)
    check_beginning(form)
    check_hidden(form)


def check_whole(form: dict[str, Any]) -> None:
    reply = read_reply(form["raw"], context_of(form))
    called = [(name, dict(arguments)) for name, arguments in reply.calls]
    called += [(name, dict(reply.parameters.get(name, {}))) for name in reply.actions if is_offered(name)]
    assert reply.text == form["text"]
    called = [(name.upper(), arguments) for name, arguments in called if is_offered(name)]
    unknown = {name for name, _ in reply.calls if not is_offered(name) and name != "REPLY"}
    assert called == [tuple(call) for call in form.get("calls", [])]
    assert unknown <= {*form.get("unknown", []), ""}
    assert bool(unknown) == ("unknown" in form)
    if "thought" in form:
        assert reply.thought == form["thought"]


def check_beginning(form: dict[str, Any]) -> None:
    """Fail if what is shown is not the beginning of the text; it depends on all that is written, not on its pieces."""
    context, raw = context_of(form), form["raw"]
    whole = read_reply(raw, context)
    assert partial_reply_text(raw, context=context) in ("", whole.text[: len(whole.text) - 200].strip())
    shown = partial_reply_text(raw, context=context, hold_back=0)
    assert not shown or whole.text.startswith(shown)


def check_hidden(form: dict[str, Any]) -> None:
    """Fail if something hidden is shown; the hidden words are repeated, so that more than is held back is written."""
    requested = form.get("requested", "text" if "unmarked" not in form else "tags")
    context = replace(context_of(form), form=AnswerForm(requested))
    raw = HIDDEN.sub(lambda word: f"{word[0]} " * 40, form["raw"])
    shown = [partial_reply_text(raw[:end], context=context) for end in range(STEP, len(raw) + STEP, STEP)]
    assert not [text for text in shown if HIDDEN.search(text)]


@pytest.mark.parametrize("form", KEPT, ids=[form["name"] for form in KEPT])
def test_the_last_check_of_a_message_changes_nothing_that_people_asked_for(form: dict[str, Any]) -> None:
    assert remove_markup(form["text"]) == (form["text"], [])
