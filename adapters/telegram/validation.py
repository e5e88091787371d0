"""Checks of the types and the depth of raw updates, and what is left out to read one; pure."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

MAX_INTEGER = 1 << 53  # Telegram guarantees 52 significant bits
MAX_UPDATE_DEPTH = 24
MAX_JSON_DEPTH = 100
_BRACKET_PATTERN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def field_names(text: str) -> frozenset[str]:
    """Return the names in a text separated by spaces."""
    return frozenset(text.split())


STRING_FIELDS = field_names(
    "text caption title first_name last_name username language_code type status data media_group_id name "
    "file_id file_unique_id file_name mime_type emoji question address phone_number custom_emoji_id url "
    "sender_user_name author_signature chat_instance"
)
INTEGER_FIELDS = field_names(
    "update_id message_id message_thread_id date edit_date migrate_to_chat_id migrate_from_chat_id offset "
    "length width height duration value until_date"
)
LIST_FIELDS = field_names(
    "entities caption_entities photo new_chat_members options old_reaction new_reaction new_chat_photo"
)
OBJECT_FIELDS = field_names(
    "message edited_message channel_post edited_channel_post callback_query message_reaction my_chat_member "
    "chat_member chat from user sender_chat actor_chat reply_to_message forward_origin via_bot sender_user "
    "old_chat_member new_chat_member left_chat_member animation audio document sticker video video_note "
    "voice contact dice location poll venue forum_topic_created forum_topic_edited quote"
)
FIELDS_WITH_ID = field_names(
    "chat from user sender_chat actor_chat via_bot sender_user left_chat_member new_chat_members"
)
# Only their names are read; fields in them are named like others and have other types.
UNREAD_FIELDS = field_names("rich_message passport_data chat_background_set")
# Without these the library reads no message, button, reaction or change of a member.
REQUIRED_FIELDS = field_names(
    "message_id date chat from text caption id chat_instance old_reaction new_reaction old_chat_member new_chat_member"
)
WORDS = field_names("text caption")  # what a person said is never left out
# Whose words they are is never left out either: these stand for an author who cannot be read.
UNKNOWN_AUTHORS: Mapping[str, Any] = {
    "forward_origin": {"type": "hidden_user", "date": 0, "sender_user_name": ""},
    "via_bot": {"id": 0, "is_bot": True, "first_name": ""},
}
MAX_VERSIONS = 50  # of one field, in which another part of it is left out


def check_update(value: Any, name: str = "", depth: int = 0) -> None:
    """Raise ValueError, which names the field, for a value of the wrong type or too deep nesting."""
    if depth > MAX_UPDATE_DEPTH:
        raise ValueError(f"{name} is too deep")
    if name in UNREAD_FIELDS:
        return
    if isinstance(value, Mapping):
        if name in FIELDS_WITH_ID and not _is_integer(value.get("id")):
            raise ValueError(f"{name} has no number")
        for key, item in value.items():
            if item is not None and not _has_right_type(key, item):
                raise ValueError(f"{key} is {type(item).__name__}")
            check_update(item, key, depth + 1)
    elif isinstance(value, list):
        for item in value:
            if name in LIST_FIELDS and not isinstance(item, Mapping | list):
                raise ValueError(f"{name} holds {type(item).__name__}")
            check_update(item, name, depth + 1)


def read_partly(update: Any, is_readable: Callable[[Any], bool]) -> tuple[Any, list[str]] | None:
    """Return an update without what makes it unreadable, and the names of what was left out; None if words would be.

    Of a user without `first_name` nothing is left out: deleted accounts have a blank one.
    """
    update = _with_first_names(update)
    if is_readable(update):
        return update, []
    kind = next((name for name, value in update.items() if isinstance(value, Mapping)), "")
    content, kept, left_out = update.get(kind, {}), dict[str, Any](), list[str]()
    required = {name: value for name, value in content.items() if name in REQUIRED_FIELDS}
    for part in (required, *({name: value} for name, value in content.items() if name not in REQUIRED_FIELDS)):
        name = "" if part is required else next(iter(part))
        versions = [("", part)]
        if name in UNKNOWN_AUTHORS:
            versions.append((name, {name: UNKNOWN_AUTHORS[name]}))
        else:
            versions += [*islice(_versions_without_part(part), MAX_VERSIONS), *([(name, {})] if name else [])]
        for missing, version in versions:
            if missing not in WORDS and is_readable({**update, kind: {**kept, **version}}):
                kept |= version
                left_out += [missing] if missing else []
                break
        else:
            return None
    return {**update, kind: kept}, left_out


def _with_first_names(value: Any) -> Any:
    if isinstance(value, Mapping):
        names = {"first_name": ""} if "is_bot" in value else {}
        return {**names, **{name: _with_first_names(item) for name, item in value.items()}}
    return [_with_first_names(item) for item in value] if isinstance(value, list) else value


def _versions_without_part(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name of each part of a value and the value without it, parts of a part first."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            for inner, version in _versions_without_part(item, f"{path}{name}."):
                yield inner, {**value, name: version}
            yield f"{path}{name}", {other: value[other] for other in value if other != name}
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for inner, version in _versions_without_part(item, f"{path}{index}."):
                yield inner, [*value[:index], version, *value[index + 1 :]]
            yield f"{path}{index}", [*value[:index], *value[index + 1 :]]


def _has_right_type(name: str, value: Any) -> bool:
    if name in STRING_FIELDS:
        return isinstance(value, str)
    if name in INTEGER_FIELDS:
        return _is_integer(value)
    if name in LIST_FIELDS:
        return isinstance(value, list)
    return name not in OBJECT_FIELDS or isinstance(value, Mapping)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -MAX_INTEGER < value < MAX_INTEGER


def read_bounded_json(payload: bytes) -> Any:
    """Parse JSON; values nested too deeply become null. Raises ValueError for invalid JSON."""
    try:
        return json.loads(payload.decode("utf-8", "replace"))
    except RecursionError:
        return json.loads(_drop_deep_values(payload).decode("utf-8", "replace"))


def _drop_deep_values(payload: bytes) -> bytes:
    parts, depth, start = [], 0, 0
    for match in _BRACKET_PATTERN.finditer(payload):
        if match[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_JSON_DEPTH + 1:
                parts += [payload[start : match.start()], b"null"]
                start = len(payload)
        elif match[0] in (b"]", b"}"):
            if depth == MAX_JSON_DEPTH + 1:
                start = match.end()
            depth -= 1
    return b"".join([*parts, payload[start:]])
