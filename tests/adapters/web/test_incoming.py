from datetime import UTC, datetime
from uuid import UUID

import pytest

from adapters.web import incoming
from adapters.web.auth import Grant
from adapters.web.frames import SendFrame
from adapters.web.json_io import HttpProblem
from adapters.web.schemas import AttachmentRequest, MessageRequest
from bot import ChannelType, MediaKind, Role, derived_id, new_id
from bot.platform import InboundMessage

GUEST = incoming.Participant("main", "guest", "guest")
ADA, BEA = UUID(int=1), UUID(int=2)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def build_inbound(submitted: incoming.SubmittedMessage, agent_id: UUID = ADA) -> InboundMessage:
    return incoming.build_inbound_message(submitted, agent_id=agent_id, message_id=new_id(), sent_at=AT)


def build_request(text: str = "Hello", **fields: object) -> incoming.SubmittedMessage:
    return incoming.parse_api_message(MessageRequest.model_validate({"text": text, **fields}), None, Grant())


def test_equal_names_are_the_same_room_and_user() -> None:
    first, second = (
        build_inbound(build_request(room="den", user="eve")),
        build_inbound(build_request("Bye", room="den", user="eve")),
    )
    assert (first.room.id, first.author.id) == (derived_id(ADA, "web", "den"), derived_id("web", "eve"))
    assert (first.room.id, first.author.id) == (second.room.id, second.author.id)


def test_two_agents_never_share_a_room_or_a_world() -> None:
    first, second = build_inbound(build_request()), build_inbound(build_request(), BEA)
    assert first.room.id != second.room.id
    assert first.world.id != second.world.id


def test_a_user_name_gives_no_role() -> None:
    arrival = build_inbound(build_request(user="owner"))
    assert arrival.world.role_of(arrival.author.id) is Role.MEMBER


def test_requests_and_frames_have_different_sources() -> None:
    page = incoming.parse_page_message(GUEST, SendFrame(type="message", text="Hi", client_id="1"), Grant())
    assert (build_request().kind, build_request().source) == (ChannelType.API, "api")
    assert (page.kind, page.source) == (ChannelType.DM, "client_chat")


def test_a_key_identifies_an_event_separately_for_api_and_page() -> None:
    first, second = (
        build_inbound(build_request(idempotency_key="k")),
        build_inbound(build_request(idempotency_key="k")),
    )
    page = build_inbound(
        incoming.parse_page_message(GUEST, SendFrame(type="message", text="Hello", client_id="k"), Grant())
    )
    assert first.key == second.key
    assert first.key.event_id != page.key.event_id
    assert build_inbound(build_request()).key.event_id != build_inbound(build_request()).key.event_id


def test_header_and_body_must_have_the_same_key() -> None:
    body = MessageRequest(text="x", idempotency_key="a")
    assert incoming.parse_api_message(body, "a", Grant()).key == "a"
    assert incoming.parse_api_message(MessageRequest(text="x"), "b", Grant()).key == "b"
    with pytest.raises(HttpProblem, match="Idempotency-Key"):
        incoming.parse_api_message(body, "b", Grant())


def test_a_fingerprint_depends_on_every_part_of_a_message() -> None:
    requests = [
        build_request(),
        build_request("Hallo"),
        build_request(room="den"),
        build_request(user="eve"),
        build_request(attachments=[{"url": "https://a.example/x"}]),
    ]
    assert len({request.fingerprint for request in requests}) == len(requests)
    assert build_request(idempotency_key="k").fingerprint == build_request(stream=True).fingerprint


@pytest.mark.parametrize(
    ("url", "content_type", "kind"),
    [
        ("https://a.example/x", "image/png", MediaKind.IMAGE),
        ("https://a.example/x.mp3?y=1", None, MediaKind.AUDIO),
        ("https://a.example/x.mp4", None, MediaKind.VIDEO),
        ("https://a.example/x.png", "text/plain", MediaKind.DOCUMENT),
        ("https://a.example/", None, MediaKind.DOCUMENT),
    ],
)
def test_the_content_type_decides_the_kind_of_an_attachment(
    url: str, content_type: str | None, kind: MediaKind
) -> None:
    sent = AttachmentRequest(url=url, content_type=content_type)
    message = incoming.parse_api_message(MessageRequest(text="x", attachments=[sent]), None, Grant())
    assert [attachment.kind for attachment in message.attachments] == [kind]
