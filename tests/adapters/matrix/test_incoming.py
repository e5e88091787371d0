"""Parsing of events, without a server: what people cannot forge, and odd values."""

from typing import Any
from uuid import UUID

import pytest

from adapters.matrix.incoming import IncomingContext, mentioned_users, parse_message
from adapters.matrix.rooms import Identity, RoomDirectory, RoomState
from bot import Role
from bot.platform import RoomRules

ADA, KIM, LEE = "@ada:localhost", "@kim:localhost", "@lee:localhost"
IDENTITY = Identity(UUID(int=1), ADA)


def event_of(content: dict[str, Any], kind: str = "m.room.message") -> dict[str, Any]:
    return {"type": kind, "event_id": "$1", "sender": KIM, "origin_server_ts": 1_780_000_000_000, "content": content}


def state_event(kind: str, content: dict[str, Any], key: str = "", sender: str = KIM) -> dict[str, Any]:
    return {"type": kind, "state_key": key, "sender": sender, "content": content}


@pytest.fixture
def context() -> IncomingContext:
    return IncomingContext(IDENTITY, RoomDirectory(IDENTITY), RoomRules({}), "Ada")


def room_of(context: IncomingContext, room_id: str, *events: dict[str, Any]) -> RoomState:
    state = context.rooms.get(room_id)
    for event in events:
        state.apply(event)
    return state


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"body": "Ada?", "m.mentions": {"user_ids": [ADA]}}, {ADA}),
        ({"body": f"{ADA}?", "m.mentions": {}}, set()),
        ({"body": "all", "m.mentions": {"room": True}}, set()),
        ({"body": "Ada?", "m.mentions": {"user_ids": [ADA, 5, LEE]}}, {ADA, LEE}),
        ({"body": "Ada?", "m.mentions": {"user_ids": "no list"}}, set()),
        ({"body": f"{ADA}: hello"}, {ADA}),
        ({"body": f"{ADA}.example.org: hello"}, set()),
        ({"body": "Ada", "formatted_body": f'<a href="https://matrix.to/#/{ADA}">Ada</a>'}, {ADA}),
    ],
)
def test_a_mention_is_what_the_client_says_or_the_whole_user_id(content: dict[str, Any], expected: set[str]) -> None:
    assert mentioned_users(event_of(content), IDENTITY) == expected


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        ({"msgtype": "m.text", "body": "> <@kim:localhost> one\n> two\n\nthree", "m.relates_to": {
            "m.in_reply_to": {"event_id": "$0"}}}, "m.room.message", "three"),
        ({"msgtype": "m.text", "body": "> quoted\n\nby hand"}, "m.room.message", "> quoted\n\nby hand"),
        ({"msgtype": "m.emote", "body": "waves"}, "m.room.message", "* waves"),
        ({"msgtype": "m.location", "geo_uri": "geo:53.5,10"}, "m.room.message", "[location: geo:53.5,10]"),
        ({"body": "a ship"}, "m.sticker", "[sticker: a ship]"),
        ({"algorithm": "m.megolm.v1.aes-sha2"}, "m.room.encrypted", "[an encrypted message]"),
        ({"msgtype": "m.text", "body": 5}, "m.room.message", ""),
        ({"msgtype": ["m.text"], "body": "odd", "m.relates_to": "none"}, "m.room.message", "odd"),
    ],
)  # fmt: skip
def test_a_message_has_the_text_that_its_author_wrote(
    context: IncomingContext, content: dict[str, Any], kind: str, text: str
) -> None:
    message = parse_message(event_of(content, kind), context.rooms.get("!a"), context, None)
    assert message.message.content.text == text


@pytest.mark.parametrize("url", ["https://example.org/a", "mxc://", "mxc:///a", "file:///etc/passwd", 7])
def test_only_addresses_of_the_homeservers_media_are_files(context: IncomingContext, url: object) -> None:
    event = event_of({"msgtype": "m.file", "body": "a", "url": url})
    assert parse_message(event, context.rooms.get("!a"), context, None).message.content.attachments == ()


@pytest.mark.parametrize("name", [ADA, "owner", "@kim:localhost (admin)"])
def test_no_display_name_becomes_a_role_or_another_users_id(context: IncomingContext, name: str) -> None:
    levels = state_event("m.room.power_levels", {"users": {LEE: 100}})
    member = state_event("m.room.member", {"membership": "join", "displayname": name}, KIM)
    named = state_event("m.room.name", {"name": "Harbour"})
    state = room_of(context, "!a", named, levels, member)
    message = parse_message(event_of({"msgtype": "m.text", "body": "hello"}), state, context, None)
    assert message.author.id == IDENTITY.entity_id(KIM)
    assert message.world.role_of(message.author.id) is Role.MEMBER
    assert message.world.role_of(IDENTITY.entity_id(LEE)) is Role.OWNER


def test_a_room_is_in_a_space_only_if_each_names_the_other(context: IncomingContext) -> None:
    create = state_event("m.room.create", {"type": "m.space"})
    via = {"via": ["localhost"]}
    room_of(context, "!claimed", create)
    room_of(context, "!claims", create, state_event("m.space.child", via, "!room"))
    room = room_of(context, "!room", state_event("m.space.parent", via, "!claimed"))
    assert context.rooms.world_of(room).external_id == "!room"
    room.apply(state_event("m.space.parent", via, "!claims"))
    assert context.rooms.world_of(room).external_id == "!claims"


def test_an_unnamed_room_is_a_direct_chat_only_while_two_are_in_it(context: IncomingContext) -> None:
    state = context.rooms.get("!a")
    state.member_count = 2
    assert state.is_private_chat
    state.apply(state_event("m.room.member", {"membership": "join"}, LEE))
    assert state.needs_member_count
    assert not state.is_private_chat


@pytest.mark.parametrize("levels", [{"users": []}, {"users": {KIM: "high"}}, {"users_default": None}, {}])
def test_power_levels_that_are_no_numbers_give_no_role(context: IncomingContext, levels: dict[str, Any]) -> None:
    create = state_event("m.room.create", {"room_version": "11"}, sender=LEE)
    state = room_of(context, "!a", create, state_event("m.room.power_levels", levels))
    assert state.role_of(KIM) is Role.MEMBER


@pytest.mark.parametrize(("version", "role"), [("11", Role.MEMBER), ("12", Role.OWNER)])
def test_the_creator_of_a_room_of_version_12_is_its_owner(context: IncomingContext, version: str, role: Role) -> None:
    create = state_event("m.room.create", {"room_version": version}, sender=LEE)
    state = room_of(context, "!a", create, state_event("m.room.power_levels", {"users": {KIM: 100}}))
    assert state.role_of(LEE) is role
