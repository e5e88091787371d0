"""Texts as posts: splitting, mentions, content warnings, visibility."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mastodon import outgoing
from adapters.mastodon.incoming import Instance, narrow_visibility
from bot import Attachment, Content, MediaKind

SERVER = Instance()
MASTODONS_MENTION = re.compile(r"(?<![=/\w])@([a-z0-9_]+)", re.IGNORECASE)  # of app/models/account.rb
LINK = "https://example.org/" + "a" * 600


def file(number: int, kind: MediaKind = MediaKind.IMAGE, content_type: str = "image/png") -> Attachment:
    return Attachment(str(number), kind, content_type=content_type, name=f"{number}.png", data=b"x")


def test_a_link_counts_23_characters_and_is_never_cut() -> None:
    assert outgoing.count_characters(f"see {LINK}", SERVER) == 27
    assert outgoing.split_text(f"{'word ' * 78}{LINK} {'word ' * 78}end", SERVER)[1].startswith(LINK)


def test_a_link_ends_where_another_script_begins() -> None:
    assert outgoing.count_characters("https://example.org/" + "海" * 10, SERVER) == 33


def test_of_a_mention_the_name_alone_counts() -> None:
    assert outgoing.count_characters("@kim@a.very.long.server.example hello", SERVER) == len("@kim hello")


@given(st.text(max_size=3000))
def test_a_text_is_split_without_loss_into_parts_that_fit(text: str) -> None:
    pieces = outgoing.split_text(text.strip(), SERVER)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(outgoing.count_characters(piece, SERVER) <= 500 - outgoing.RESERVED_LENGTH for piece in pieces)


def test_a_post_has_at_most_four_pictures_or_a_single_video() -> None:
    files = tuple(file(number) for number in range(5))
    video = file(9, MediaKind.VIDEO, "video/mp4")
    posts = outgoing.split_reply(Content(text="Look.", attachments=(*files, video)), SERVER)
    assert [[item.id for item in post.attachments] for post in posts] == [["0", "1", "2", "3"], ["4"], ["9"]]
    assert [post.text for post in posts] == ["Look.", "", ""]


def test_a_file_that_the_server_does_not_take_is_named() -> None:
    server = Instance(configuration={"media_attachments": {"supported_mime_types": ["image/jpeg"]}})  # type: ignore[call-arg]
    [post] = outgoing.split_reply(Content(text="Look.", attachments=(file(1),)), server)
    assert (post.text, post.attachments) == ("Look.\n(could not be posted: 1.png)", ())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("@kim hello", "@kim hello"),
        ("@robin@evil.example hello @kim", "@kim hello kim"),
        (
            "write to kim@example.org or https://example.org/@kim",
            "@kim write to kim@example.org or https://example.org/@kim",
        ),
        ("＠robin hello", "@kim robin hello"),
        ("ask @@robin and @＠@robin", "@kim ask robin and robin"),
        ("hello", "@kim hello"),
    ],
)
def test_a_reply_mentions_its_addressee_alone(text: str, shown: str) -> None:
    assert outgoing.write_post(text, ["kim"], "", SERVER)[0] == shown


def test_a_content_warning_is_cut_where_the_post_has_no_room() -> None:
    text, warning = outgoing.write_post("x" * 490, [], "a warning of many words", SERVER)
    assert (len(text), warning) == (490, "a warning ")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("CW: food\nCake.", ("food", "Cake.")),
        ("[content warning: food]\nCake.", ("food", "Cake.")),
        ("CW: food", ("", "CW: food")),
        ("My CW: food\nCake.", ("", "My CW: food\nCake.")),
    ],
)
def test_a_text_may_begin_with_its_content_warning(text: str, found: tuple[str, str]) -> None:
    assert outgoing.take_warning(text) == found


@pytest.mark.parametrize(
    ("visibilities", "narrowest"),
    [(("public", "unlisted"), "unlisted"), (("direct", "public"), "direct"), (("private", "limited"), "direct")],
)
def test_the_least_visible_of_several_visibilities_holds(visibilities: tuple[str, ...], narrowest: str) -> None:
    assert narrow_visibility(*visibilities) == narrowest


@given(st.text(alphabet="@＠ab./=- ", max_size=40))
def test_no_text_of_a_model_mentions_anyone(text: str) -> None:
    written, _ = outgoing.write_post(text, [], "", SERVER)
    assert MASTODONS_MENTION.search(written) is None
