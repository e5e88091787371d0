"""The partial text of a reply while it is streamed."""

from itertools import pairwise

import pytest

from bot.prompts.reply_parser.reader import HOLD_BACK, AnswerContext, partial_reply_text, read_reply
from bot.testing import model_answer

HEAD = "<response><thought>I see.</thought><actions>REPLY</actions><text>"
REPLIES = [
    model_answer("Hello, how are you?"),
    model_answer("a < b && c > d, <b>bold</b> and AT&T"),
    model_answer("One line.\nAnother, with `code` and\n```\n<html>\n```\n"),
    model_answer("Grüße 🙂 an alle"),
    HEAD + "<![CDATA[x < y && <i>z</i> ]] and ]]></text></response>",
    HEAD + "R&#233;sum&eacute; &lt;b&gt; &amp;lt; &unknown;</text></response>",
    HEAD + "He wrote </text> and went on.</text></response>",
    HEAD + "He wrote <thought> and <response>.</text></response>",
    HEAD + "cut in the mid",
    "```xml\n<response>\n  <thought>so</thought>\n  <actions>\n REPLY \n</actions>\n<providers></providers>\n"
    "<text>fenced</text>\n</response>\n```",
    "<thought>no root</thought><actions><action>reply</action></actions><text>Bare fields.</text>",
    '{"thought": "so", "actions": ["REPLY"], "text": "Hello, as JSON"}',
    "<response><actions></actions><text>Nothing named is a reply.</text></response>",
    "<response><thought>'</thought>' is a tag</thought><actions>REPLY</actions><text>Yes.</text></response>",
]
SILENT = [
    model_answer("I will.", actions=["REPLY", "FOLLOW_ROOM"]),
    model_answer("I will.", actions=["IGNORE"]),
    model_answer("", providers=["FACTS"]),
    model_answer("Let me look.", providers=["FACTS"]),
    "Plain prose, in which a tag may come yet.",
    "<response><text>Before its actions.</text><actions>REPLY</actions></response>",
    "<response><text>Without any.</text></response>",
    "<think>I would say <response><actions>REPLY</actions><text>this</text></response>",
    "<response><thought>I would say <actions>REPLY</actions><text>this</text> or that",
    "",
]


@pytest.mark.parametrize("raw", REPLIES)
def test_the_partial_text_only_grows_and_ends_as_the_text_of_the_reply(raw: str) -> None:
    reply = read_reply(raw)
    seen = [partial_reply_text(raw[:end], hold_back=0) for end in range(len(raw) + 1)]
    for before, after in pairwise(seen):
        assert after.startswith(before) or before.startswith(after)
    assert all(reply.text.startswith(text) for text in seen)
    assert seen[-1]


@pytest.mark.parametrize("raw", REPLIES[:6])
def test_a_text_without_quoted_tags_is_shown_completely(raw: str) -> None:
    assert partial_reply_text(raw, hold_back=0) == read_reply(raw).text


@pytest.mark.parametrize("raw", [*REPLIES, *SILENT])
def test_thoughts_and_incomplete_tags_are_never_shown(raw: str) -> None:
    for end in range(len(raw) + 1):
        text = partial_reply_text(raw[:end], hold_back=0)
        assert "I see" not in text
        assert not any(mark in text for mark in ("<re", "</re", "<te", "</te", "<th", "<!", "CDATA", "REPLY"))


@pytest.mark.parametrize("raw", SILENT)
def test_only_plain_replies_have_a_partial_text(raw: str) -> None:
    assert {partial_reply_text(raw[:end], hold_back=0) for end in range(len(raw) + 1)} == {""}


@pytest.mark.parametrize("actions", ["", "<actions></actions>"])
def test_a_model_with_tools_has_a_partial_text_only_if_it_names_reply(actions: str) -> None:
    raw = f"<response><thought>so</thought>{actions}<text>Hello</text></response>"
    assert partial_reply_text(raw, has_functions=True, hold_back=0) == ""
    assert partial_reply_text(model_answer("Hello"), has_functions=True, hold_back=0) == "Hello"
    assert partial_reply_text(model_answer("Hello", actions=["MUTE_ROOM"]), has_functions=True, hold_back=0) == ""


@pytest.mark.failure("F-09")
def test_an_enormous_answer_is_parsed_in_time() -> None:
    assert partial_reply_text(HEAD + "<" * 10_000_000, hold_back=0).strip("<") == ""
    assert partial_reply_text("<thought></thought>" * 500_000, hold_back=0) == ""


def test_the_end_of_a_growing_text_is_held_back() -> None:
    text = ("a word " * 100).strip()
    assert partial_reply_text(HEAD + text) == text[: len(text) - HOLD_BACK].strip()
    assert partial_reply_text(HEAD + "Hello there.") == ""


@pytest.mark.long
@pytest.mark.parametrize(
    "end", ["<|im_end|>\n<|im_start|>user\nmore", "<think>SECRET", "\nAnn: more", "\n[03:15] Ann (id 1a): more"]
)
def test_nothing_behind_the_end_of_an_answer_is_shown_while_it_is_written(end: str) -> None:
    context = AnswerContext(own_name="Marlo", people=("Ann",))
    text = "a word " * 100 + "the end."
    raw = HEAD + text + end + " SECRET" * 200
    shown = {partial_reply_text(raw[:length], context=context) for length in range(len(HEAD), len(raw))}
    assert all(text.startswith(piece) for piece in shown)
    assert read_reply(raw + "</text></response>", context).text == text


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Hello {{user}}, I am {{char}}.", "Hello Ann, I am Marlo."),
        ("{{name1}} and {{agentName}} and {{User}}", "Ann and Marlo and Ann"),
        ("Write `{{user}}` in it:\n```\n{{user}}\n```\n{{user}}!", "Write `{{user}}` in it:\n```\n{{user}}\n```\nAnn!"),
        ("A template has {{count}} in it", "A template has {{count}} in it"),
    ],
)
def test_a_placeholder_of_a_name_is_never_said_but_in_code(written: str, said: str) -> None:
    context = AnswerContext(own_name="Marlo", people=("Ann", "Kim"), person="Ann")
    raw = model_answer(written)
    assert read_reply(raw, context).text == said
    shown = {partial_reply_text(raw[:end], context=context, hold_back=0) for end in range(len(raw) + 1)}
    assert all(said.startswith(text) for text in shown)
