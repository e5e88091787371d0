"""Checks of the types and the depth of raw updates, and what is left out to read one; pure."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

MAX_INTEGER = 1 << 53  # Telegram guarantees 52 significant bits
MAX_UPDATE_DEPTH = 24
MAX_JSON_DEPTH = 100
_BRACKET_PATTERN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')

_MENTION_PATTERN = re.compile(r"(?<![\w@./])@[A-Za-z0-9_]{4,32}(?!\w)")
_NUMBER_PATTERN = re.compile(r"-?\d{1,16}", re.ASCII)


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
BOOLEAN_FIELDS = field_names("is_bot is_topic_message is_automatic_forward")
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
UPDATES = field_names("message edited_message channel_post edited_channel_post guest_message")
EVENTS = field_names("callback_query message_reaction my_chat_member chat_member")
MESSAGES = UPDATES | field_names("reply_to_message pinned_message")
USERS = field_names(
    "from user via_bot sender_user left_chat_member new_chat_members sender_business_bot guest_bot_caller_user"
)
CHATS = field_names("chat sender_chat actor_chat guest_bot_caller_chat")
ENTITIES = field_names("entities caption_entities")
IDENTITY = field_names("id type title username first_name last_name is_bot is_forum language_code")
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
            if item is None or not _has_right_type(key, item):  # Telegram leaves out what has no value
                raise ValueError(f"{key} is {type(item).__name__}")
            check_update(item, key, depth + 1)
    elif isinstance(value, list):
        for item in value:
            if name in LIST_FIELDS and not isinstance(item, Mapping | list):
                raise ValueError(f"{name} holds {type(item).__name__}")
            check_update(item, name, depth + 1)


def read_partly(
    update: Mapping[str, Any], is_readable: Callable[[Any], bool], now: datetime
) -> tuple[Any, list[str]] | None:
    """Return an update without what makes it unreadable, and the names of what was left out; None if words would be.

    A required field without which nothing could be read, such as the date, gets a value that stands for it: the time
    `now`, a blank name (which deleted accounts have too), the type of chat that the chat's id tells.
    """
    left_out = list[str]()
    known = {name: value for name, value in update.items() if name in UPDATES | EVENTS | {"update_id"}}
    update = _Repair(-update["update_id"], int(now.timestamp()), left_out).repair(known)
    if is_readable(update):
        return update, left_out
    kind = next((name for name, value in update.items() if isinstance(value, Mapping)), "")
    content, kept = update.get(kind, {}), dict[str, Any]()
    required = {name: value for name, value in content.items() if name in REQUIRED_FIELDS}
    for part in (required, *({name: value} for name, value in content.items() if name not in REQUIRED_FIELDS)):
        name = "" if part is required else next(iter(part))
        versions = [("", part)]
        if name in UNKNOWN_AUTHORS:
            versions.append((name, {name: UNKNOWN_AUTHORS[name]}))
        else:
            versions += [*islice(_versions_without_part(part), MAX_VERSIONS), *([(name, {})] if name else [])]
        if part is required:
            versions.append(("details of chat and author", {key: _identity_of(item) for key, item in part.items()}))
        for missing, version in versions:
            if missing not in WORDS and is_readable({**update, kind: {**kept, **version}}):
                kept |= version
                left_out += [missing] if missing else []
                break
        else:
            return None
    return {**update, kind: kept}, left_out


def _identity_of(value: Any) -> Any:
    """Return a chat or a user without all that does not identify them."""
    if not isinstance(value, Mapping) or "id" not in value:
        return value
    return {name: item for name, item in value.items() if name in IDENTITY}


@dataclass(frozen=True, slots=True)
class _Repair:
    """Removes what is of another type than the library expects, and adds required fields; `left_out` names both."""

    message_id: int
    date: int
    left_out: list[str]

    def repair(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Return a value with all required fields, each of its type; what is nested too deeply becomes None."""
        if depth > MAX_UPDATE_DEPTH:
            return None
        if isinstance(value, list):
            items = [self.repair(item, name, depth + 1) for item in value]
            kept = [item for item in items if name not in LIST_FIELDS or _is_item(name, item)]
            self.left_out.extend([f"an item of {name}"] if len(kept) < len(items) else [])
            return kept
        if not isinstance(value, Mapping) or name in UNREAD_FIELDS:
            return value
        repaired = {
            key: self.repair(_as_integer(name, key, item), key, depth + 1)
            for key, item in value.items()
            if item is not None
        }
        has_words = any(isinstance(repaired.get(key), str) for key in WORDS)
        for key in [key for key, item in repaired.items() if not _is_usable(key, item)]:
            if key in WORDS and not has_words:
                continue
            self.left_out.append(f"{name}.{key}" if depth > 1 else key)
            del repaired[key]
            if key in UNKNOWN_AUTHORS:
                repaired[key] = UNKNOWN_AUTHORS[key]
        for key, words in (("entities", "text"), ("caption_entities", "caption")):
            if key in value and repaired.get(key) != value[key] and isinstance(value.get(words), str):
                repaired[key] = [item for item in repaired.get(key, ()) if item.get("type") != "mention"]
                repaired[key] += find_mentions(value[words])
        chat = value.get("chat")
        if (
            "chat" not in repaired
            and "from" in repaired
            and isinstance(chat, Mapping)
            and chat.get("type") == "private"
        ):
            repaired["chat"] = {"id": repaired["from"]["id"], "type": "private"}  # which have the same id
        return {**self._stand_ins(name, repaired), **repaired}

    def _stand_ins(self, name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values for the required fields of an object."""
        if name in USERS:
            return {"is_bot": False, "first_name": ""}
        if name in CHATS:
            number = value.get("id")
            return {"type": "private" if isinstance(number, int) and number > 0 else "supergroup"}
        if name in MESSAGES:
            return {"message_id": self.message_id, "date": self.date}
        return {"date": self.date} if name in EVENTS else {}


def _as_integer(parent: str, name: str, value: Any) -> Any:
    """Return the number that a text or a fraction stands for, where a number is expected."""
    if name in INTEGER_FIELDS or (name == "id" and parent in FIELDS_WITH_ID):
        if isinstance(value, str) and _NUMBER_PATTERN.fullmatch(value):
            return int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
    return value


def _is_usable(name: str, value: Any) -> bool:
    if name in FIELDS_WITH_ID and isinstance(value, Mapping) and not _is_integer(value.get("id")):
        return False
    return _has_right_type(name, value)


def _is_item(name: str, value: Any) -> bool:
    if name in ENTITIES:
        return isinstance(value, Mapping) and {"type", "offset", "length"} <= value.keys()
    has_id = name not in FIELDS_WITH_ID or (isinstance(value, Mapping) and _is_integer(value.get("id")))
    return isinstance(value, Mapping | list) and has_id


def find_mentions(text: str) -> list[dict[str, Any]]:
    """Return an entity for each @name in a text, as Telegram does."""
    return [
        {
            "type": "mention",
            "offset": len(text[: match.start()].encode("utf-16-le", "replace")) // 2,
            "length": len(match[0]),
        }
        for match in _MENTION_PATTERN.finditer(text)
    ]


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
    if name in BOOLEAN_FIELDS:
        return isinstance(value, bool)
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
