"""Casts of the hub's JSON as messages."""

from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from adapters.farcaster.incoming import Cast, ReceivedCast, User, read_user, text_of
from bot import Attachment, MediaKind

OWN, KIM, HASH = 1000, 7, "0x" + "ab" * 20
USERS = {OWN: User("ada"), KIM: User("kim.eth", "Kim"), 9: User()}


def make_cast(text: str = "", *, fid: int = KIM, **body: Any) -> Cast:
    data = {"fid": fid, "timestamp": 7, "type": "MESSAGE_TYPE_CAST_ADD", "castAddBody": {"text": text, **body}}
    return Cast.model_validate({"hash": HASH, "data": data})


@pytest.mark.parametrize(
    ("text", "mentions", "positions", "expected"),
    [
        ("cc  and ", [KIM, 9], [3, 8], "cc @kim.eth and @!9"),
        (" hello", [OWN], [0], "hello"),
        ("é  é", [KIM], [3], "é @kim.eth é"),
        (" you", [OWN, KIM], [0, 0], "@kim.eth you"),
        ("short", [KIM], [500], "short@kim.eth"),
        ("é", [KIM], [1], "\ufffd@kim.eth\ufffd"),
        ("back", [KIM, 9], [3, -4], "@!9bac@kim.ethk"),
        ("lone", [KIM, 9], [0], "@kim.ethlone"),
    ],
)
def test_names_stand_where_the_bytes_of_the_text_have_their_place(
    text: str, mentions: list[int], positions: list[int], expected: str
) -> None:
    assert text_of(make_cast(text, mentions=mentions, mentionsPositions=positions), USERS, OWN) == expected


def test_embedded_pictures_are_attachments_and_other_addresses_follow_the_text() -> None:
    urls = ["https://example.org/a.png", "https://example.org/page", "javascript:alert(1)", "https://[bad"]
    cast = make_cast("Look", embeds=[{"url": url} for url in urls])
    message = ReceivedCast(cast, str(cast.id), USERS, OWN, UUID(int=1)).to_inbound().message
    assert message.content.text == "Look\nhttps://example.org/page\nhttps://[bad"
    assert message.content.attachments == (Attachment(f"{HASH}/0", MediaKind.IMAGE, url=urls[0]),)


def test_a_person_is_known_by_the_number_of_the_account_whatever_it_is_called() -> None:
    cast = make_cast("Hello", fid=9)
    pretender = {**USERS, 9: User("ada", "Ada")}
    first, second = (
        ReceivedCast(cast, "7/0x", users, OWN, UUID(int=1)).to_inbound().author for users in (USERS, pretender)
    )
    assert first.id == second.id != UUID(int=1)
    assert (first.external_id, first.name, second.name) == ("9", "!9", "Ada")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (None, User()),
        (["?", {}, {"data": {"userDataBody": {"type": "USER_DATA_TYPE_USERNAME", "value": None}}}], User()),
        ([{"data": {"userDataBody": {"type": "USER_DATA_TYPE_USERNAME", "value": "a b\n@root"}}}], User()),
        ([{"data": {"userDataBody": {"type": "USER_DATA_TYPE_USERNAME", "value": "kim"}}}], User("kim")),
    ],
)
def test_a_user_name_is_taken_only_in_the_form_of_a_name(messages: Any, expected: User) -> None:
    assert read_user(messages) == expected


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"hash": "0x12", "data": {"fid": 1, "timestamp": 1, "castAddBody": {"text": ""}}},
        {"hash": HASH, "data": {"fid": 0, "timestamp": 1, "castAddBody": {"text": ""}}},
        {"hash": HASH, "data": {"fid": 1, "timestamp": 2**32, "castAddBody": {"text": ""}}},
        {"hash": HASH, "data": {"fid": 1, "timestamp": 1, "reactionBody": {}}},
    ],
)
def test_what_is_no_cast_is_refused(raw: Any) -> None:
    with pytest.raises(ValidationError):
        Cast.model_validate(raw)
