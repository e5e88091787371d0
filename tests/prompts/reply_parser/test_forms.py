"""The recorded forms in which models write: each is read as it was meant, whole and while it is written."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from bot.prompts.reply_parser.reader import AnswerContext, AnswerForm, partial_reply_text, read_reply

FORMS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("forms.toml").read_text("utf-8"))["form"]
ACTIONS = ("telltide", "calltaxi")
PIECES = (1, 3, 17)
each_form = pytest.mark.parametrize("form", FORMS, ids=[form["name"] for form in FORMS])


def context_of(form: dict[str, Any]) -> AnswerContext:
    requested = AnswerForm(form.get("requested", "tags"))
    return AnswerContext(requested, "Marlo", ("Ann", "Kim", "User"), frozenset(ACTIONS))


def is_offered(name: str) -> bool:
    return name.replace("_", "").casefold() in ACTIONS


def test_the_corpus_is_large_enough() -> None:
    assert len(FORMS) >= 150
    assert len({form["name"] for form in FORMS}) == len(FORMS)


@each_form
def test_a_form_is_read_as_it_was_meant(form: dict[str, Any]) -> None:
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


@each_form
@pytest.mark.parametrize("size", PIECES)
def test_what_is_shown_while_a_form_is_written_is_the_beginning_of_its_text(form: dict[str, Any], size: int) -> None:
    """Long answers: the text is made longer by a story, so that more than what is held back is written."""
    context, raw = context_of(form), form["raw"]
    seen = [partial_reply_text(raw[:end], context=context, hold_back=0) for end in range(size, len(raw) + size, size)]
    whole = read_reply(raw, context)
    assert partial_reply_text(raw, context=context) in ("", whole.text[: len(whole.text) - 200].strip())
    assert not seen[-1] or seen[-1] == whole.text or whole.text.startswith(seen[-1])
