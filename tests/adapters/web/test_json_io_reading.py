import pytest

from adapters.web.json_io import HttpProblem, parse_json, validate_model
from adapters.web.schemas import MessageRequest


@pytest.mark.failure("N-10")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 10_000,
        '{"a":1,"a":2}',
        '{"text":NaN}',
        '{"text":-Infinity}',
        b"\xff\xfe",
        '{"text":"\x00"}',
        "{" + ",".join(f'"{n}":1' for n in range(100_000)) + "}",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_invalid_json_is_refused_with_a_short_message(text: str | bytes) -> None:
    with pytest.raises(HttpProblem) as raised:
        parse_json(text)
    assert raised.value.status == 400
    assert len(raised.value.message) < 300


@pytest.mark.failure("N-03")
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "text"),
        ({"text": 1}, "text"),
        ({"text": "x", "source": "client_chat"}, "source"),
        ({"text": "x", "roles": ["OWNER"]}, "roles"),
        ({"text": "x", "room": ""}, "room"),
        ({"text": "x", "room": "a\nb"}, "room"),
        ({"text": "x", "user": "y" * 65}, "user"),
        ({"text": "x", "stream": "yes"}, "stream"),
        ({"text": "x", "idempotency_key": ""}, "idempotency_key"),
        ({"text": "x", "attachments": [{"url": "file:///etc/passwd"}]}, "attachments.0.url"),
        ({"text": "x", "attachments": [{"url": "http://a/ b"}]}, "attachments.0.url"),
        ({"text": "x", "attachments": [{"url": "https://a.example"}] * 11}, "attachments"),
        ([], "body"),
        ("x", "body"),
        ({"text": "x", "room": "\ud800"}, "room"),
    ],
)
def test_a_wrong_field_is_named(body: object, named: str) -> None:
    with pytest.raises(HttpProblem) as raised:
        validate_model(MessageRequest, body)
    assert raised.value.status == 422
    assert raised.value.message.startswith(f"{named}: ")


def test_the_first_of_many_wrong_fields_are_named() -> None:
    with pytest.raises(HttpProblem) as raised:
        validate_model(MessageRequest, {"text": "x", **{f"f{n}": 1 for n in range(900)}})
    assert raised.value.message.endswith("and 895 more")


def test_unpaired_surrogates_are_replaced() -> None:
    assert validate_model(MessageRequest, {"text": "a\ud83d"}).text == "a\ufffd"
