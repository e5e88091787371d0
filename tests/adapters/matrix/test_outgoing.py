"""Replies as events: rich text, splitting, mentions, relations."""

import json

import pytest

from adapters.matrix import outgoing
from adapters.matrix.rooms import RoomTarget
from bot import Attachment, Content, MediaKind

KIM = "@kim:localhost"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain, with 2 * 3 and a_b_c", None),
        ("**bold**", "<p><strong>bold</strong></p>"),
        ("a <b>tag</b>", "<p>a &lt;b&gt;tag&lt;/b&gt;</p>"),
        ("![spy](https://example.org/pixel.png)", '<p>!<a href="https://example.org/pixel.png">spy</a></p>'),
        ("[x](javascript:alert(1))", None),
        ("one\ntwo", "<p>one<br />\ntwo</p>"),
    ],
)
def test_markdown_is_sent_as_html_with_the_plain_text(text: str, html: str | None) -> None:
    content = outgoing.build_text(text, ())
    assert content["body"] == text
    assert content.get("formatted_body") == html


def test_only_people_of_the_room_are_notified_and_at_most_three() -> None:
    people = [f"@p{number}:localhost" for number in range(4)]
    text = " ".join([*people, "@stranger:localhost", "@room", "https://localhost/@p0:localhost"])
    assert outgoing.build_text(text, people)["m.mentions"] == {"user_ids": people[:3]}
    assert outgoing.build_text(text, ())["m.mentions"] == {}


@pytest.mark.parametrize(
    "text", ["word " * 3000, "x" * 20_000, "🏴‍☠️" * 4000, "<&" * 6000, "|a|b|\n|-|-|\n" + "|1|2|\n" * 3000]
)
def test_a_long_text_arrives_completely_in_events_that_the_server_takes(text: str) -> None:
    parts = outgoing.split_text(text)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= outgoing.MAX_TEXT_LENGTH for part in parts)
    assert all(len(json.dumps(outgoing.build_text(part, ()), ensure_ascii=False).encode()) < 65_000 for part in parts)


def test_files_are_separate_parts_and_a_single_file_has_the_text_as_caption() -> None:
    files = [Attachment(str(number), MediaKind.DOCUMENT, name=str(number), data=b"1") for number in range(2)]
    assert [
        (part.text, len(part.attachments)) for part in outgoing.split_reply(Content("two", attachments=tuple(files)))
    ] == [("two", 0), ("", 1), ("", 1)]
    assert len(outgoing.split_reply(Content("one", attachments=tuple(files[:1])))) == 1


def test_a_part_in_a_thread_stays_in_it_with_and_without_a_reply() -> None:
    target = RoomTarget.parse("!room:localhost/$root")
    assert (target.room_id, target.thread_id) == ("!room:localhost", "$root")
    plain, reply = outgoing.relate({}, target, "")["m.relates_to"], outgoing.relate({}, target, "$1")["m.relates_to"]
    assert (plain["rel_type"], plain["event_id"], plain["is_falling_back"]) == ("m.thread", "$root", True)
    assert (reply["m.in_reply_to"], reply["is_falling_back"]) == ({"event_id": "$1"}, False)
    assert outgoing.relate({"body": "a"}, RoomTarget("!room:localhost"), "") == {"body": "a"}


def test_an_edit_has_the_new_content_and_notifies_no_person_again() -> None:
    edit = outgoing.build_edit(outgoing.build_text(f"**{KIM}**", [KIM]), "$1")
    assert edit["m.new_content"]["m.mentions"] == {"user_ids": [KIM]}
    assert edit["m.mentions"] == {}
    assert edit["body"] == f"* **{KIM}**"


def test_the_same_edit_has_the_same_transaction_id_and_another_text_another() -> None:
    first, second = (outgoing.transaction_id_of_edit("d", "$1", Content(text)) for text in ("a", "b"))
    assert first == outgoing.transaction_id_of_edit("d", "$1", Content("a"))
    assert first != second
