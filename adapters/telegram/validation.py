"""Type and depth checks of raw updates."""

import json
import re
from collections.abc import Mapping
from typing import Any


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORDS = _named(
    "text caption title first_name last_name username language_code type status data media_group_id name "
    "file_id file_unique_id file_name mime_type emoji question address phone_number custom_emoji_id url "
    "sender_user_name author_signature chat_instance"
)
NUMBERS = _named(
    "update_id message_id message_thread_id date edit_date migrate_to_chat_id migrate_from_chat_id offset "
    "length width height duration value until_date"
)
LISTS = _named(
    "entities caption_entities photo new_chat_members options old_reaction new_reaction new_chat_photo"
)
OBJECTS = _named(
    "message edited_message channel_post edited_channel_post callback_query message_reaction my_chat_member "
    "chat_member chat from user sender_chat actor_chat reply_to_message forward_origin via_bot sender_user "
    "old_chat_member new_chat_member left_chat_member animation audio document sticker video video_note "
    "voice contact dice location poll venue forum_topic_created forum_topic_edited quote"
)
NUMBERED = _named(
    "chat from user sender_chat actor_chat via_bot sender_user left_chat_member new_chat_members"
)
LARGEST = 1 << 53  # Telegram promises no more
MAX_UPDATE_DEPTH = 24


def check(value: Any, name: str = "", depth: int = 0) -> None:
    """Raise ValueError, which names the place, for an update that cannot be Telegram's."""
    if depth > MAX_UPDATE_DEPTH:
        raise ValueError(f"{name} is too deep")
    if isinstance(value, Mapping):
        if name in NUMBERED and not _is_number(value.get("id")):
            raise ValueError(f"{name} has no number")
        for key, one in value.items():
            if one is not None and not _is_right(key, one):
                raise ValueError(f"{key} is {type(one).__name__}")
            check(one, key, depth + 1)
    elif isinstance(value, list):
        for one in value:
            if name in LISTS and not isinstance(one, Mapping | list):
                raise ValueError(f"{name} holds {type(one).__name__}")
            check(one, name, depth + 1)


def _is_right(name: str, value: Any) -> bool:
    if name in WORDS:
        return isinstance(value, str)
    if name in NUMBERS:
        return _is_number(value)
    if name in LISTS:
        return isinstance(value, list)
    return name not in OBJECTS or isinstance(value, Mapping)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST < value < LARGEST


MAX_JSON_DEPTH = 100
_SIGN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def read_json(payload: bytes) -> Any:
    """Read JSON; what lies too deep is null. Raises ValueError for what is none."""
    try:
        return json.loads(payload.decode("utf-8", "replace"))
    except RecursionError:
        return json.loads(_shallow(payload).decode("utf-8", "replace"))


def _shallow(payload: bytes) -> bytes:
    parts, depth, start = [], 0, 0
    for found in _SIGN.finditer(payload):
        if found[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_JSON_DEPTH + 1:
                parts += [payload[start : found.start()], b"null"]
                start = len(payload)
        elif found[0] in (b"]", b"}"):
            if depth == MAX_JSON_DEPTH + 1:
                start = found.end()
            depth -= 1
    return b"".join([*parts, payload[start:]])
