"""Signed casts: the published conformance vector, and what another reader of protobuf makes of their fields."""

from datetime import UTC, datetime

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from adapters.farcaster.emulator import HubError, decode_fields
from adapters.farcaster.messages import CastId, sign_cast, to_datetime, to_seconds

KEY = bytes.fromhex("10" + "00" * 31)
# `cast_add_basic` of the conformance vectors of farcasterxyz/protocol.
VECTOR_HASH = "0x27f49c6928369d64495f4c4dd142c2e7389ebf1e"
VECTOR_BODY = (
    "0a21080110d2091880b58e2d20012a13221148656c6c6f2c2046617263617374657221121427f49c6928369d64495f4c4dd142c2e7389ebf1e"
    "180122404f67a836aa72f3c5a2658126479748ffb21d9cb862bccacd2a731990d1650ee6334d993a4563190bc96242f37da24c2de79c6c42"
    "5d35a7ec3995454e90cb3f0f2801322069104ef20c6676aacc9e8c291800d1b7e911e20f85b4066156ea118ace44b8d73a21080110d20918"
    "80b58e2d20012a13221148656c6c6f2c2046617263617374657221"
)
PARENT = CastId(2, "0x" + "ab" * 20)
# The fields of the published schema that a cast has: name, number, type (or message), whether it is repeated.
SCHEMA = {
    "CastId": [("fid", 1, "UINT64", False), ("hash", 2, "BYTES", False)],
    "Embed": [("url", 1, "STRING", False), ("cast_id", 2, "CastId", False)],
    "CastAddBody": [
        ("mentions", 2, "UINT64", True),
        ("parent_cast_id", 3, "CastId", False),
        ("text", 4, "STRING", False),
        ("mentions_positions", 5, "UINT32", True),
        ("embeds", 6, "Embed", True),
        ("type", 8, "UINT32", False),
    ],
    "MessageData": [
        ("type", 1, "UINT32", False),
        ("fid", 2, "UINT64", False),
        ("timestamp", 3, "UINT32", False),
        ("network", 4, "UINT32", False),
        ("cast_add_body", 5, "CastAddBody", False),
    ],
}


def read_data(data: bytes) -> object:
    """Return what Google's library reads of a MessageData by the published schema."""
    file = descriptor_pb2.FileDescriptorProto(name="cast.proto", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind, is_repeated in fields:
            field = message.field.add(name=field_name, number=number, label=3 if is_repeated else 1)
            if kind in SCHEMA:
                field.type, field.type_name = 11, f".{kind}"
            else:
                field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    read = message_factory.GetMessageClass(pool.FindMessageTypeByName("MessageData"))()
    read.ParseFromString(data)
    return read


def test_a_cast_has_the_bytes_of_the_published_conformance_vector() -> None:
    cast = sign_cast(KEY, 1234, 94608000, "Hello, Farcaster!")
    assert str(cast.id) == f"1234/{VECTOR_HASH}"
    assert cast.body.hex() == VECTOR_BODY


@pytest.mark.parametrize(("text", "kind"), [("é" * 160, 0), ("é" * 161, 1)], ids=["320 bytes", "322 bytes"])
def test_another_reader_of_the_schema_finds_parent_embeds_and_type(text: str, kind: int) -> None:
    cast = sign_cast(KEY, 2**40, 1, text, parent=PARENT, embeds=["https://example.org/a", "https://example.org/b"])
    read = read_data(dict(decode_fields(cast.body))[7])  # type: ignore[arg-type]
    body = read.cast_add_body  # type: ignore[attr-defined]
    assert (read.type, read.fid, read.timestamp, read.network) == (1, 2**40, 1, 1)  # type: ignore[attr-defined]
    assert (body.parent_cast_id.fid, f"0x{body.parent_cast_id.hash.hex()}") == (PARENT.fid, PARENT.hash)
    assert (body.text, body.type) == (text, kind)
    assert [embed.url for embed in body.embeds] == ["https://example.org/a", "https://example.org/b"]


def test_the_same_cast_has_the_same_hash_and_another_time_or_parent_has_another() -> None:
    ids = [
        sign_cast(KEY, 1, 7, "Hello").id,
        sign_cast(KEY, 1, 7, "Hello").id,
        sign_cast(KEY, 1, 8, "Hello").id,
        sign_cast(KEY, 1, 7, "Hello", parent=PARENT).id,
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_times_count_from_the_beginning_of_2021() -> None:
    moment = datetime(2021, 1, 1, 0, 1, 30, 900_000, tzinfo=UTC)
    assert to_seconds(moment) == 90
    assert to_datetime(90) == moment.replace(microsecond=0)


@pytest.mark.parametrize("text", ["", "7", "7/0x12", "kim/0x" + "ab" * 20, "7/0x" + "zz" * 20])
def test_what_names_no_cast_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        CastId.parse(text)


@pytest.mark.parametrize("data", [b"\x08", b"\x08\xff", b"\x0d\x01"], ids=["no value", "open varint", "wire type 5"])
def test_the_emulated_hub_refuses_what_is_no_message(data: bytes) -> None:
    with pytest.raises(HubError):
        decode_fields(data)
