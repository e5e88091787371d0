"""Parsing of model answers; f01 and so on are the failures that a test covers."""

import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bot.models.router import parse_values
from bot.prompts.reply_parser.dialects import clean
from bot.prompts.reply_parser.reader import (
    MAX_ACTIONS,
    MAX_CHARS,
    AnswerContext,
    AnswerForm,
    Decision,
    NextStep,
    Reply,
    parse_tag_tree,
    read_decision,
    read_fields,
    read_object,
    read_reply,
    read_step,
    visible_text,
)

GOOD = (
    "<response><thought>He wants the weather</thought><actions>REPLY,FORECAST</actions>"
    '<parameters><FORECAST>{"city": "Paris"}</FORECAST></parameters>'
    "<providers>FACTS</providers><text>Tom &amp; I go &#x3c;out&gt; – ja, <b>now</b>! 🎈</text></response>"
)
GOLDENS = (
    GOOD,
    "```xml\n" + GOOD + "\n```",
    "<think>First <response>?</think>\n" + GOOD,
    "Sure, here it is:\n<output>\n" + GOOD + "\n</output>",
    "<response>\n  <thought>t</thought>\n  <actions><action>REPLY</action><action>MUTE</action></actions>\n"
    "  <parameters><MUTE><text>secret</text><days>3</days></MUTE></parameters>\n"
    "  <text><![CDATA[a </text></response> &amp; [1] <b>]]></text>\n</response>",
    "<thought>He typed </thought> and <actions>BAN</actions> once</thought><actions>REPLY</actions><text>No.</text>",
    '{"thought": "t", "actions": ["REPLY", "MUTE"], "parameters": {"MUTE": {"text": "secret"}}, '
    '"text": "He said \\"hi\\" \\u2013 ok"}',
    '```json\n{"text": "Hello", "actions": "REPLY,MUTE", "params": {"days": 3}}\n```',
)
READERS: tuple[Callable[[str], object], ...] = (
    read_reply,
    read_step,
    read_decision,
    parse_tag_tree,
    read_object,
    lambda raw: read_fields(raw, ("text", "post", "imagePrompt")),
)


def test_a_valid_answer_is_read_completely() -> None:
    assert read_reply(GOOD) == Reply(
        text="Tom & I go <out> – ja, <b>now</b>! 🎈",
        thought="He wants the weather",
        actions=("REPLY", "FORECAST"),
        providers=("FACTS",),
        parameters={"FORECAST": {"city": "Paris"}},
    )


@pytest.mark.failure("F-01")
@pytest.mark.parametrize("raw", ["", " \n\t", "\u200b", "\ufeff \u200d\u2060\u00ad", "\u3164", "```\n```"])
def test_an_answer_without_visible_text_is_an_empty_reply(raw: str) -> None:
    assert read_reply(raw) == Reply()


@pytest.mark.failure("F-01")
@pytest.mark.parametrize("raw", ["<response></response>", "<response>", "<response><text>\u200b</text></response>"])
def test_empty_tags_are_an_empty_reply(raw: str) -> None:
    reply = read_reply(raw)
    assert (reply.text, reply.actions) == ("", ())


@pytest.mark.failure("F-02")
@pytest.mark.parametrize(
    "prose",
    [
        "Hello there!",
        "I <3 you & 2 < 3",
        "Use the <text> tag for that",
        "wrap it in <response> tags",
        "wrap it in <response></response> tags",
        "The <think> tag is for reasoning",
        "{waves} hello",
        '{"foo": 1}',
        'POST {"text": "hi"} to the hook, then wait.',
        "```python\nprint(1)\n```",
        "```\nls\n```\nand then\n```\npwd\n```",
        "<!DOCTYPE html> is the first line",
        'Send this:\n```json\n{"text": "hello", "actions": ["REPLY"]}\n```\nand you get 200.',
        'Here you are: {"text": "hello", "actions": ["REPLY"]} Hope that helps!',
        '{"text": "hello", "lines": 3, "font": "serif"}',
        "In SVG you write <text>Ahoy</text> for words.",
    ],
)
def test_prose_is_the_text(prose: str) -> None:
    assert read_reply(prose + "\n") == Reply(text=prose, actions=("REPLY",), is_tagged=False)


@pytest.mark.failure("F-02")
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("<response>Hello there</response>", "Hello there"),
        ("<response><thought>t</thought> Hello there</response>", "Hello there"),
        ("Hello there <thought>t</thought>", "Hello there"),
        ("<thought>t</thought>\nHello there", "Hello there"),
        ("Hello there</text></response>", "Hello there"),
    ],
)
def test_prose_outside_the_tags_is_the_text_if_there_is_no_text_tag(raw: str, text: str) -> None:
    reply = read_reply(raw)
    assert (reply.text, reply.actions, reply.is_tagged) == (text, ("REPLY",), False)


@pytest.mark.failure("F-02")
def test_prose_before_a_truncated_answer_is_not_sent() -> None:
    assert read_reply("Sure, here is my reply: <response><thought>I th").text == ""


@pytest.mark.failure("F-03")
@pytest.mark.parametrize("tail", ["", "<", "</", "</te", "</text", "</respon", "&am", "&#x3"])
def test_a_truncated_text_is_used_without_its_incomplete_end(tail: str) -> None:
    reply = read_reply("<response><actions>MUTE</actions><text>Hel" + tail)
    assert reply == Reply(text="Hel", actions=("MUTE",), is_complete=False)


@pytest.mark.failure("F-03")
def test_a_missing_closing_tag_is_not_a_truncation() -> None:
    raw = "<response><text>Hi {}</response>\n```"
    assert read_reply(raw.format("you")) == Reply(text="Hi you", actions=("REPLY",))
    assert read_reply(raw.format("</response> you")).text == "Hi </response> you"


@pytest.mark.failure("F-04")
@pytest.mark.parametrize(
    "raw",
    [
        "<response><text>Hi</text><actions>REPLY,MU",
        "<response><text>Hi</text><actions>REPLY,MUTE</acti",
        "<response><text>Hi</text><actions><action>REPLY</action><action>MUTE</action>",
        "<response><text>Hi</text><actions>MUTE</actions><parameters>",
        '<response><text>Hi</text><actions>MUTE</actions><parameters>{"days": 3',
        "<response><text>Hi</text><actions>MUTE</actions><parameters><MUTE><text>secret</text>",
        "<response><text>Hi</text><actions>MUTE</actions><parameters><MUTE></MUTE><text>secret",
        '{"text": "Hi", "actions": ["MUTE"',
        '{"text": "Hi", "actions": ["MUTE"], "parameters": {"MUTE": {"text": "secr',
    ],
)
def test_a_truncation_within_actions_or_parameters_runs_nothing(raw: str) -> None:
    assert read_reply(raw) == Reply(text="Hi", is_complete=False)


@pytest.mark.failure("F-04")
def test_truncated_arguments_are_not_used_as_the_text() -> None:
    raw = "<response><actions>SEND</actions><parameters><SEND><text>secret"
    assert read_reply(raw) == Reply(is_complete=False)
    assert read_reply('{"actions": ["SEND"], "parameters": {"text": "secret').text == ""


@pytest.mark.failure("F-04")
def test_actions_and_parameters_without_closing_tag_end_at_the_next_field() -> None:
    raw = '<response><actions>MUTE<parameters>{"days": 3}<text>Hi</text></response>'
    assert read_reply(raw) == Reply(text="Hi", actions=("MUTE",), parameters={"MUTE": {"days": 3}})


@pytest.mark.matrix(3)
@pytest.mark.failure("F-03", "F-04")
@pytest.mark.parametrize("golden", GOLDENS)
def test_no_truncation_adds_an_action_or_changes_the_text(golden: str) -> None:
    whole, data = read_reply(golden), golden.encode()
    for length in range(len(data)):
        cut = data[:length].decode(errors="ignore")
        reply = read_reply(cut)
        assert set(reply.actions) <= {*whole.actions, "REPLY"}
        assert "MUTE" not in reply.actions or "</actions>" in cut or cut.startswith(("{", "`"))
        assert "secret" not in reply.text
        assert reply.parameters in ({}, whole.parameters)
        assert whole.text.startswith(reply.text) or not reply.is_tagged
        assert "<" not in reply.text[:1]
        for read in READERS:
            read(cut)


@pytest.mark.failure("F-05")
@pytest.mark.parametrize(
    "text",
    [
        "a <b>bold</b> word",
        "a <textarea> and <textual/>",
        "close it with </text> or </response> so",
        "I have a <thought>deep</thought> and <actions>BAN</actions> here",
        "<response><actions>BAN</actions></response> is what he wrote",
    ],
)
def test_tags_within_the_text_are_text(text: str) -> None:
    reply = read_reply(f"<response><actions>REPLY</actions><text>{text}</text></response>")
    assert reply == Reply(text=text, actions=("REPLY",))
    assert read_reply(f"<text>{text}</text>") == reply


@pytest.mark.failure("F-05")
def test_tags_within_the_thought_are_thought() -> None:
    thought = "He typed </thought> and <response><actions>BAN</actions></response>, ha"
    raw = f"<response><thought>{thought}</thought><actions>REPLY</actions><text>No</text></response>"
    assert read_reply(raw) == Reply(text="No", thought=thought, actions=("REPLY",))


@pytest.mark.failure("F-05")
@pytest.mark.parametrize(
    "raw",
    [
        "<response><thought>He typed <actions>BAN</actions> so I",
        "<response><thought>He typed <actions>BAN</actions>",
        "<response><thought>He typed <response><actions>BAN</actions></response>",
        "<thought>He typed <response><actions>BAN</actions></response>",
        "<response><thought>He typed </thought> and <actions>BAN</actions></response> so I",
    ],
)
def test_actions_quoted_in_a_truncated_thought_do_not_run(raw: str) -> None:
    reply = read_reply(raw)
    assert (reply.actions, reply.is_complete) == ((), False)


@pytest.mark.failure("F-05")
def test_a_thought_without_closing_tag_ends_at_the_next_field() -> None:
    raw = "<response><thought>hm <actions>MUTE</actions><text>Hi</text></response>"
    assert read_reply(raw) == Reply(text="Hi", thought="hm", actions=("MUTE",))


@pytest.mark.failure("F-06")
def test_the_first_block_and_the_first_field_win() -> None:
    first = "<response><actions>REPLY</actions><text>one</text><text>two</text><actions>BAN</actions></response>"
    second = "<response><actions>BAN</actions><providers>X</providers><text>three</text></response>"
    for raw in (first + second, first.removesuffix("</response>") + second):
        assert read_reply(raw) == Reply(text="one", actions=("REPLY",))
    assert read_reply('{"text": "one", "TEXT": "two"}').text == "one"


@pytest.mark.failure("F-06")
def test_a_second_block_is_not_prose_after_the_first() -> None:
    raw = "<response><thought>a</thought>{}<response><text>b</text></response>"
    assert read_reply(raw.format("")) == Reply(thought="a", is_complete=False)
    assert read_reply(raw.format("</response>")) == Reply(thought="a")
    assert read_reply(raw.format("</response> Hello ")).text == "Hello"


@pytest.mark.failure("F-06")
def test_an_empty_first_block_is_ignored() -> None:
    assert read_reply("<response></response>\n<response><text>Hi</text></response>").text == "Hi"


@pytest.mark.failure("F-07")
@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("<![CDATA[a < b &amp; </text></response>]]>", "a < b &amp; </text></response>"),
        ("x <![CDATA[<y>]]> &lt;z&gt;", "x <y> <z>"),
        ("<![CDATA[never closed", "never closed"),
        ("write <![CDATA[ there", "write <![CDATA[ there"),
        ("&amp;lt;", "&lt;"),
        ("&lt;b&gt; &quot;x&quot; &apos;", '<b> "x" \''),
        ("&#x3c;&#60;&#x1F388;&#10;.", "<<🎈\n."),
        ("&nbsp; &unknown; &LT; & &; AT&T;", "&nbsp; &unknown; &LT; & &; AT&T;"),
        ("&#0;&#xD800;&#x110000;&#27;&#x85;&#;&#99999999;", "&#0;&#xD800;&#x110000;&#27;&#x85;&#;&#99999999;"),
    ],
)
def test_cdata_is_unwrapped_and_the_rest_unescaped_once(written: str, text: str) -> None:
    assert read_reply(f"<response><text>{written}</text></response>").text == text


@pytest.mark.failure("F-07")
def test_escapes_in_arguments_are_unescaped_once() -> None:
    raw = "<response><actions>MUTE</actions><parameters>{}</parameters></response>"
    for written in ('{"why": "&quot;a&quot; &amp;lt;"}', "{&quot;why&quot;: &quot;\\&quot;a\\&quot; &amp;lt;&quot;}"):
        assert read_reply(raw.format(written)).parameters == {"MUTE": {"why": '"a" &lt;'}}


@pytest.mark.failure("F-08")
@pytest.mark.parametrize("entity", ['<!ENTITY a "lol">', '<!ENTITY a SYSTEM "file:///etc/passwd">'])
def test_a_doctype_is_text_and_defines_nothing(entity: str) -> None:
    doctype = f'<?xml version="1.0"?><!DOCTYPE x [{entity}]>'
    raw = f"{doctype}<response><text>&a;{doctype}</text></response>"
    assert read_reply(raw) == Reply(text="&a;" + doctype, actions=("REPLY",))


HOSTILE = {
    **{tag: tag for tag in ("<text>", "</text>", "<thought>", "<response>", "</response>", "<a>", "<actions>")},
    **{tag: tag for tag in ("<parameters>", "<![CDATA[", "<text><![CDATA[", "<", "</", "<text ", "{", '{"a":')},
    **{tag: tag for tag in ("[", '{"text":', "<think>", "</think>", "a<think></think>", "&", "&#1", "```", "\n")},
    **{tag: tag for tag in ("a <think> b ", "</tool_call>", "a </s> b ", "a `<think>` b ", "Use <tool_call> and ")},
    **{
        tag: tag
        for tag in ("<s>a</s> ", "<tool_call>{}</tool_call>", "x </think> y ", "a\n```\nx\n```\n", "[TOOL_CALLS]")
    },
    **{tag: tag for tag in ("<|", "<|im_end|>", "**", "a b ", "~", "`a", "```x\n", ">~~~x\n", "Ada: ", "<x y=")},
    "closed at once": "<text></text>",
    "closed, then prose": "<thought></thought>x<text></text>y",
    "arguments": "<parameters><A>",
    "items": "<actions><action>",
    "commas": "<actions>,",
    "quotes": '{"text": "a" "',
    "closed crosswise": "<response><text></response></text><thought><actions></thought></actions>",
}


@contextmanager
def steps_counted() -> Iterator[list[int]]:
    """Count the lines that run: the same on every machine, since no garbage of other tests is collected meanwhile."""
    steps = [0]

    def count(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        steps[0] += event == "line"
        return count

    before = sys.gettrace()
    gc.disable()
    sys.settrace(count)
    try:
        yield steps
    finally:
        sys.settrace(before)
        gc.enable()


@pytest.mark.matrix(3)
@pytest.mark.failure("F-09")
@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_parsing_time_grows_linearly(piece: str) -> None:
    for read in READERS:
        taken = []
        for length in (3_000, 6_000):
            with steps_counted() as steps:
                read(piece * (length // len(piece)))
            taken.append(steps[0])
        assert taken[1] <= 2.1 * taken[0] + 100


@pytest.mark.matrix(4)
@pytest.mark.failure("F-09")
@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_answer_is_read_to_the_end(piece: str) -> None:
    raw = piece * (MAX_CHARS // len(piece) + 1)
    for read in READERS:
        read(raw)


@pytest.mark.failure("F-09")
def test_only_the_first_256_ki_are_read() -> None:
    assert read_reply("x" * 10_000_000) == Reply(
        "x" * MAX_CHARS, actions=("REPLY",), is_complete=False, is_tagged=False
    )
    assert read_reply("x" * MAX_CHARS + "<response><text>y</text></response>").text[-1] == "x"


@pytest.mark.failure("F-10")
@pytest.mark.parametrize(
    "raw",
    [
        "{}",
        "```json\n{}\n```",
        "Here you are:\n```json\n{}\n```",
        "Here you are:\n\n{}",
        "<response>{}</response>",
        "<think>hm</think>{}",
    ],
)
def test_json_is_read_like_tags(raw: str) -> None:
    answer = {
        "thought": "a <text>t</text>",
        "actions": ["REPLY", "MUTE"],
        "providers": "FACTS, TIME",
        "params": {"MUTE": {"days": 3}},
        "message": "Hi <text>there</text>",
    }
    assert read_reply(raw.format(json.dumps(answer))) == Reply(
        text="Hi <text>there</text>",
        thought="a <text>t</text>",
        actions=("REPLY", "MUTE"),
        providers=("FACTS", "TIME"),
        parameters={"MUTE": {"days": 3}},
    )


@pytest.mark.failure("F-10")
@pytest.mark.parametrize("key", ["text", "message", "reply", "response", "Text"])
def test_the_text_may_have_several_keys(key: str) -> None:
    assert read_reply(json.dumps({key: "Hi", "action": "MUTE"})) == Reply(text="Hi", actions=("MUTE",))
    assert read_reply(json.dumps({"response": {key: "Hi"}})).text == "Hi"


@pytest.mark.failure("F-10")
@pytest.mark.parametrize(
    "raw",
    [
        '{"text": "Hi", "actions": ["REPLY"],}',
        '{"text": "Hi" , "actions": "REPLY", "n": NaN, "m": 1e999}',
        '{"thought": "", "text": "Hi", "n": -Infinity}',
        "{'thought': '', 'actions': ['REPLY'], 'text': 'Hi', 'n': None}",
        '{thought: "", text: "Hi"}',
    ],
)
def test_slightly_invalid_json_is_read(raw: str) -> None:
    assert read_reply(raw) == Reply(text="Hi", actions=("REPLY",))


@pytest.mark.failure("F-10")
def test_unescaped_quotes_and_line_breaks_in_a_json_string_are_accepted() -> None:
    raw = '{"text": "He said "hi"\nto me", "actions": "REPLY, MUTE"}'
    assert read_reply(raw) == Reply(text='He said "hi"\nto me', actions=("REPLY", "MUTE"))


@pytest.mark.failure("F-10")
@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 10_000, '{"a":' * 100_000, "nonsense"])
def test_text_that_the_decoder_rejects_is_not_json_and_is_not_sent(value: str) -> None:
    reply = read_reply('{"text": "Hi", "n": ' + value + "}")
    assert (reply.text, reply.is_complete) == ("Hi", False)
    assert read_reply('{"n": ' + value).text == ""


@pytest.mark.failure("F-10")
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('{"thought": "t", "text": "He said \\"hi', 'He said "hi'),
        ('{"thought": "t", "text": "Hi \\u00', "Hi"),
        ('{"thought": "t", "text": "Hi \\ud83c', "Hi"),
        ('{"thought": "t", "te', ""),
        ('{"tho', ""),
        ("{", ""),
        ('{"parameters": {"text": "secret', ""),
    ],
)
def test_truncated_json_yields_the_beginning_of_the_text(raw: str, text: str) -> None:
    reply = read_reply(raw)
    assert (reply.text, reply.is_complete) == (text, False)


@pytest.mark.failure("F-12")
@pytest.mark.parametrize(
    "written",
    [
        "<actions>REPLY,MUTE</actions>",
        "<actions> REPLY , MUTE, , </actions>",
        "<actions>\n- REPLY\n- MUTE\n</actions>",
        '<actions>["REPLY", "MUTE"]</actions>',
        "<actions>['REPLY', 'MUTE',]</actions>",
        "<actions><action>REPLY</action><action>MUTE</action></actions>",
        "<action>REPLY</action><action>MUTE</action>",
        "<ACTIONS>`REPLY`, MUTE</ACTIONS>",
        "<actions><![CDATA[REPLY,MUTE]]></actions>",
    ],
)
def test_actions_are_read_in_any_list_format(written: str) -> None:
    assert read_reply(f"<response>{written}<text>Hi</text></response>").actions == ("REPLY", "MUTE")


@pytest.mark.failure("F-12")
def test_at_most_ten_actions_are_read() -> None:
    names = [f"a{number}" for number in range(1000)]
    for raw in (f"<actions>{','.join(names)}</actions>", json.dumps({"actions": names})):
        assert read_reply(raw).actions == tuple(names[:MAX_ACTIONS])


@pytest.mark.failure("F-14")
@pytest.mark.parametrize(
    "written",
    [
        '<parameters><MUTE>{"days": 3}</MUTE></parameters>',
        '<params>\n<MUTE>\n{"days": 3}\n</MUTE>\n</params>',
        '<parameters>{"MUTE": {"days": 3}}</parameters>',
        '<parameters>```json\n{"mute": {"days": 3}}\n```</parameters>',
        '<parameters>{"days": 3}</parameters>',
        '<parameters><![CDATA[{"days": 3}]]></parameters>',
    ],
)
def test_arguments_are_assigned_to_their_action(written: str) -> None:
    raw = f"<response><actions>REPLY,MUTE</actions>{written}<text>Hi</text></response>"
    assert read_reply(raw) == Reply(text="Hi", actions=("REPLY", "MUTE"), parameters={"MUTE": {"days": 3}})


@pytest.mark.failure("F-14")
def test_nested_arguments_may_have_the_names_of_fields() -> None:
    raw = (
        "<response><actions>SEND</actions>"
        "<parameters><SEND><text>for him</text><to>Bob</to></SEND></parameters>"
        "<text>for all</text></response>"
    )
    assert read_reply(raw) == Reply(
        text="for all", actions=("SEND",), parameters={"SEND": {"text": "for him", "to": "Bob"}}
    )


@pytest.mark.failure("F-14")
@pytest.mark.parametrize("actions", ["REPLY", "A,B", ""])
def test_flat_arguments_are_dropped_unless_there_is_a_single_action(actions: str) -> None:
    raw = f'<actions>{actions}</actions><parameters>{{"days": 3}}</parameters><text>x</text>'
    assert read_reply(raw).parameters == {}


@pytest.mark.parametrize("block", ["<think>{}</think>", "<THINKING>{}</thinking>\n", "{}</think>\n", "<think>{}"])
def test_the_reasoning_block_before_the_answer_is_dropped(block: str) -> None:
    assert read_reply(block.format("I could say hello") + GOOD) == read_reply(GOOD)


def test_reasoning_without_an_answer_is_no_answer() -> None:
    assert read_reply("<think>I could say hello. So") == Reply(is_complete=False)
    assert read_reply("<think>a</think>Hello") == Reply("Hello", actions=("REPLY",), is_tagged=False)
    assert read_reply("<response><text>a </think> tag</text></response>").text == "a </think> tag"


@pytest.mark.parametrize(
    "raw",
    [
        "```xml\n<response><text>Hi</text></response>\n```",
        "```\n<text>Hi</text>\n```",
        "Sure!\n```xml\n<response><text>Hi</text></response>\n```\nHope <text>that</text> helps",
        "<output><response><text>Hi</text></response></output>",
        "<RESPONSE><Text >Hi</TEXT></RESPONSE>",
        "<response><message>Hi</message></response>",
        "<response type='x'>\n<providers/><text>Hi</text>",
        "<text>Hi</text>",
        "Sure! <response><text>Hi</text></response>",
        "<text>Hi</text></respon",
    ],
)
def test_wrapping_case_and_missing_roots_do_not_matter(raw: str) -> None:
    assert read_reply(raw) == Reply(text="Hi", actions=("REPLY",))


def test_lone_surrogates_are_never_returned() -> None:
    assert read_reply("\ud83c\udf88 \ud83c").text == "🎈 \ufffd"
    assert read_object(r'{"a": ["\ud83c\udf88 \ud83c"]}') == {"a": ["🎈 \ufffd"]}


@pytest.mark.parametrize(
    ("raw", "action"),
    [
        ("<response><name>B</name><reasoning>x</reasoning><action>respond</action></response>", "RESPOND"),
        ("<action>**STOP**</action>", "STOP"),
        ("<response><action>IGNORE</response>", "IGNORE"),
        ("<response><action>MAYBE | NOT</action></response>", "MAYBE"),
        ('{"action": "stop", "reasoning": "x"}', "STOP"),
        ("RESPOND", "RESPOND"),
        (" respond.\n", "RESPOND"),
        ("action: IGNORE", "IGNORE"),
        ("**STOP**", "STOP"),
        ("The action: ignore, surely", "IGNORE"),
        ("I would IGNORE this and not RESPOND", "IGNORE"),
        ("I should not respond", ""),
        ("UNRESPONDED", ""),
        ("", ""),
        ("<response><reasoning>He said STOP</reasoning></response>", ""),
        ("<response><reasoning>x</reasoning><action>RESP", ""),
        ("<response><reasoning>He typed <action>RESPOND</action>", ""),
        ('{"reasoning": "x", "action": "RESP', ""),
    ],
)
def test_a_decision_is_a_single_word(raw: str, action: str) -> None:
    assert read_decision(raw).action == action


def test_a_decision_has_its_reasons() -> None:
    raw = "<response><reasoning>a &amp; b</reasoning><action>STOP</action></response>"
    assert read_decision(raw) == Decision("STOP", "a & b")


STEP = (
    "<response><thought>t</thought><action>FORECAST</action><providers>A,B</providers>"
    "<parameters>{}</parameters><isFinish>{}</isFinish></response>"
)


@pytest.mark.parametrize(
    "written",
    [
        '{"city": "Paris"}',
        '{"FORECAST": {"city": "Paris"}}',
        "<city>Paris</city>",
        "<FORECAST><city>Paris</city></FORECAST>",
    ],
)
def test_a_step_has_a_single_action_and_its_arguments(written: str) -> None:
    assert read_step(STEP.format(written, "false")) == NextStep(
        thought="t", action="FORECAST", providers=("A", "B"), parameters={"city": "Paris"}
    )


def test_the_last_step_is_marked() -> None:
    assert read_step("<response><isFinish> TRUE </isFinish><text>Done</text></response>") == NextStep(
        is_finish=True, text="Done"
    )
    assert read_step('{"isFinish": true, "text": "Done"}').is_finish
    assert read_step("All done.") == NextStep(is_finish=True, text="All done.")
    assert not read_step("<response><action>A</action><isFinish>tru").is_finish
    assert not read_step("").is_finish


@pytest.mark.failure("F-04")
def test_a_step_truncated_in_its_arguments_does_nothing() -> None:
    for raw in ('<response><action>A</action><parameters>{"ci', "<response><action>A"):
        assert read_step(raw) == NextStep(is_complete=False)


def test_fields_are_found_by_the_names_as_given() -> None:
    raw = "<response><post>hi &lt;3 <b>x</b></post><imageprompt>a cat</imageprompt><other>y</other></response>"
    wanted = {"post": "hi <3 <b>x</b>", "imagePrompt": "a cat"}
    assert read_fields(raw, ("post", "imagePrompt", "title")) == wanted
    assert read_fields(f"```json\n{json.dumps({**wanted, 'x': 1})}\n```", ("post", "imagePrompt")) == wanted
    assert read_fields("just prose", ("post",)) == {}
    assert read_fields(raw, ()) == {}


def test_a_truncated_field_is_omitted() -> None:
    assert read_fields("<response><title>a</title><post>half a po", ("title", "post")) == {"title": "a"}
    assert read_fields('{"title": "a", "post": "half a po', ("title", "post")) == {"title": "a"}
    assert read_fields("<response><title>a<post>b</response>", ("title", "post")) == {"title": "a", "post": "b"}


@pytest.mark.parametrize(
    "raw",
    ['{"a": {"b": 1}}', 'So: {x} ```json\n{"a": {"b": 1}}\n``` ok', '{"a": {"b": 1},}', '{} {"a": {"b": 1}} {"c": 2}'],
)
def test_an_object_is_found_at_any_position(raw: str) -> None:
    assert read_object(raw) == {"a": {"b": 1}}


@pytest.mark.parametrize("raw", ["", "prose {here}", "[1, 2]", '{"a": 1', "{" * 100_000])
def test_without_an_object_an_empty_object_is_returned(raw: str) -> None:
    assert read_object(raw) == {}


NAMES = [
    *("response", "output", "think", "thought", "actions", "action", "parameters", "providers"),
    *("text", "message", "MUTE", "isFinish", "reasoning", "post", "b"),
]
FRAGMENTS = st.sampled_from(
    [
        *(f"<{name}>" for name in NAMES),
        *(f"</{name}>" for name in NAMES),
        *("<text/>", "<![CDATA[", "]]>", "&lt;", "&#x3c;", "```", "```xml\n", "```json\n", "<", ">", "</te"),
        *("{", "}", '{"text": ', '"Hi"', '"', ",", ":", "[", "]", "true", '{"MUTE": {"a": 1}}', "\\"),
        *("MUTE", "REPLY,", "Hello ", "\n"),
    ]
)
ANSWERS = st.text() | st.lists(FRAGMENTS | st.text(max_size=3), max_size=30).map("".join)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(ANSWERS)
def test_any_text_can_be_read_without_an_error(raw: str) -> None:
    for read in READERS:
        read(raw)
    reply = read_reply(raw)
    assert reply.text == visible_text(reply.text)
    assert len(reply.actions) <= MAX_ACTIONS
    assert all(name and name == name.strip() for name in reply.actions)
    assert reply.is_complete or not reply.parameters or reply.actions
    json.dumps([reply.text, reply.thought, reply.actions, reply.parameters]).encode()


@pytest.mark.long
@pytest.mark.failure("F-05")
@settings(max_examples=200, deadline=None)
@given(st.lists(FRAGMENTS.filter(lambda part: part != "</response>"), max_size=20), st.data())
def test_no_truncation_runs_actions_quoted_in_a_thought(quoted: list[str], data: st.DataObject) -> None:
    thought = " . ".join(["</thought>", *quoted, ""])
    raw = f"<response><thought>{thought}</thought><actions>REPLY</actions><text>Hi</text></response>"
    cut = raw[: data.draw(st.integers(0, len(raw)))]
    assert set(read_reply(cut).actions) <= {"REPLY"}


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters()))
def test_surrogates_are_handled_at_any_position(raw: str) -> None:
    read_reply(raw).text.encode()
    read_reply(json.dumps({"text": raw})).text.encode()


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(ANSWERS, ANSWERS)
def test_an_escaped_text_is_read_unchanged(thought: str, text: str) -> None:
    assume(visible_text(text) and not clean(text, with_own=False).found and not text.strip().startswith("<response>"))
    inside = [part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for part in (thought, text)]
    raw = "<response><thought>{}</thought><actions>REPLY</actions><text>{}</text></response>".format(*inside)
    assert read_reply(raw) == Reply(text=text.strip(), thought=visible_text(thought), actions=("REPLY",))


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(ANSWERS)
def test_a_text_in_cdata_or_json_is_read_unchanged(text: str) -> None:
    assume(visible_text(text) and not clean(text, with_own=False).found and not text.strip().startswith("<response>"))
    assert read_reply(json.dumps({"text": text, "actions": ["REPLY"]})).text == text.strip()
    cdata = text.replace("]]>", "]]]]><![CDATA[>")
    raw = f"<response><actions>REPLY</actions><text><![CDATA[{cdata}]]></text></response>"
    assert read_reply(raw) == Reply(text=text.strip(), actions=("REPLY",))


def test_a_requested_object_counts_also_behind_prose_and_before_a_remark() -> None:
    answer = '{"thought": "t", "actions": "REPLY", "text": "Hi"}'
    for raw in (f"Let me think.\nSo:\n```json\n{answer}\n```\nHope that helps!", f"One.\n\nTwo.\n{answer}"):
        assert read_reply(raw, AnswerContext(AnswerForm.JSON)) == Reply(text="Hi", thought="t", actions=("REPLY",))
        assert read_reply(raw, AnswerContext(AnswerForm.TAGS)).text == raw


# Texts with markup in code or in sentences, and texts that look like another form of an answer.
TEXTS = [
    "Use `<|im_end|>` to end a turn.",
    "```\n<think>a</think>\n```",
    "Call it:\n\n    <tool_call>x</tool_call>\n\nthen wait.",
    "Template:\n```jinja\n{{ '<|im_start|>' + role }}\n```",
    "~~~\n<think>x</think>\n~~~\nok",
    "1. `</think>`\n2. `[/THINK]`",
    'JSON:\n```json\n{"name": "web_search", "arguments": {"q": 1}}\n```\nThat is a call.',
    "Example:\n```\nUser: hi\nMarlo: hello\n```\nEnd.",
    'Run:\n```sh\necho "</s>" > x\n```',
    "Text with <b>bold</b>, <i>it</i> and <s>strike</s> ok",
    "`a` and ``b ` c`` and ```d```",
    'Config: {"text": "hello"} works.',
    "<div>\n<p>Hello</p>\n</div>",
    "<svg><text>Ahoy</text></svg>",
    '<?xml version="1.0"?>\n<note><to>Kim</to></note>',
    "def f(x):\n    return x < 3 and x > 1",
    "Set<Map<String, List<Integer>>> x;",
    "The tag </output> closes it.",
    "Write <response> first.",
    "### Response\nis a heading in Alpaca prompts.",
    "Ask Ann: she knows.\nAnn is right.",
    "Note:\nKim: 5 points\nAnn: 3 points",
    "At [03:15] we go.\n[03:20] Lunch",
    "Kim (id 12): hello in a line",
    "a\n\n\nb",
    "  indented\n    more",
    "- a\n  - b",
    "| a | b |\n|---|---|\n| c | d |",
    'x = ["a"]',
    "[TELL_TIDE]",
    "(no response needed from Ann)",
    '"quoted"',
    '"{\\"a\\": 1}"',
    "null",
    "None",
    "yes",
    "...and then?",
    "…",
    "👍",
    "Ann: thanks\nfor all",
    "thought provoking: yes",
    "Text: hello",
    "Answer: 42",
    "Reply: ok",
    "Message: hi",
    "Action: run\nTarget: hill",
    "Reasoning: he is late.\n\nSo wait.",
    "<output>42</output> is printed",
    "<!DOCTYPE html>\n<html><body>hi</body></html>",
    "Thinking about it, yes.",
    "<3",
    "</3",
    "a <- b; c -> d",
    "if (a<b) {x}",
    "<user@example.org>",
    "<https://example.org>",
    "5 > 3 < 4",
    "^_^ <('-')>",
    "&lt;think&gt; is escaped",
    "AT&amp;T",
]
CONTEXT = AnswerContext(AnswerForm.TAGS, "Marlo", ("Ann", "Kim", "User"), frozenset({"telltide", "calltaxi"}))


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_arrives_as_it_was_written_in_every_form(text: str) -> None:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    head, tail = "<response><thought>t</thought><actions>REPLY</actions><text>", "</text></response>"
    written = [text, f"{head}{escaped}{tail}", json.dumps({"thought": "t", "actions": ["REPLY"], "text": text})]
    written += [f"{head}{text}{tail}"] if "&" not in text else []
    for raw in written:
        reply = read_reply(raw, CONTEXT)
        assert (reply.text, reply.calls) == (text.strip(), ())


@pytest.mark.parametrize(
    "text",
    [
        "Hello{}you",
        "```py\nhum(place='x'){}x\n```",
        "[TOOL_CALLS]name{}x{{}}",
        "<tool_call>name{}x</tool_call>",
        '{{"text": "a", "x": 1{}}}',
    ],
)
def test_a_quarter_of_a_million_blanks_inside_of_an_answer_are_read_to_the_end(text: str) -> None:
    """Where the time grows with the square of their number, this takes longer than a test may."""
    answer = text.format(" " * 250_000)
    for form in AnswerForm:
        read_reply(answer, AnswerContext(form, "Marlo", (), frozenset({"hum"})))
    parse_values(answer)
