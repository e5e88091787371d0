"""From a reply to the parts in which it leaves, and from a part to the body of a request; pure."""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from adapters.discord.cutting import cut
from bot import Attachment, Choice, Content, Delivery, MediaKind

LONGEST = 2000
LONGEST_BESIDE_FILES = 1700  # leaves room to say which files could not be sent
MOST_FILES = 10
MOST_PINGS = 3
MOST_BUTTONS = 5
CHOICE = "choice:"
_MENTION = re.compile(r"<@!?(\d{1,20})>")
SILENT: dict[str, Any] = {"parse": [], "users": [], "roles": [], "replied_user": False}


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent: the JSON of a message, and files beside it."""

    json: dict[str, Any]
    files: tuple[Attachment, ...] = ()

    @property
    def form(self) -> list[dict[str, Any]]:
        """Give the files as the fields of a form."""
        return [
            {
                "name": f"files[{number}]",
                "value": one.data,
                "filename": file_name(one),
                "content_type": one.content_type or "application/octet-stream",
            }
            for number, one in enumerate(self.files)
        ]


def parts(content: Content) -> list[Content]:
    """Cut a reply into parts of 2,000 characters; files and choices go with the last."""
    files = content.attachments[:MOST_FILES]
    links = [one.url for one in files if one.data is None and one.kind is not MediaKind.IMAGE and one.url]
    pieces = cut("\n".join([content.text, *links]), LONGEST)
    kept = tuple(one for one in files if one.data is not None or (one.kind is MediaKind.IMAGE and one.url))
    made = [Content(text=piece) for piece in pieces]
    if not made or (kept and len(made[-1].text) > LONGEST_BESIDE_FILES):
        made.append(Content())
    made[-1] = replace(made[-1], attachments=kept, choices=content.choices)
    return made


def body_of(delivery: Delivery, people: Collection[str]) -> Body:
    """Make the body of a new message; of those it names only `people` are told, and three at most."""
    body = shown(delivery.content, people)
    body.json["nonce"] = delivery.id
    body.json["enforce_nonce"] = True
    if delivery.reply_to.isdigit():
        body.json["message_reference"] = {"message_id": delivery.reply_to, "fail_if_not_exists": False}
        body.json["allowed_mentions"]["replied_user"] = True
    return body


def shown(content: Content, people: Collection[str] = ()) -> Body:
    """Make the body of what a message shows, for a new one as for one that takes the place of another."""
    named = dict.fromkeys(_MENTION.findall(content.text))
    users = [one for one in named if one in people][:MOST_PINGS]
    files = tuple(one for one in content.attachments if one.data is not None)
    pictures = [one for one in content.attachments if one.data is None]
    json: dict[str, Any] = {"content": content.text, "allowed_mentions": {**SILENT, "users": users}}
    if pictures:
        json["embeds"] = [{"image": {"url": one.url}} for one in pictures]
    if content.choices:
        json["components"] = components(content.choices)
    if files:
        json["attachments"] = [
            {"id": number, "filename": file_name(one), "description": one.description[:1024]}
            for number, one in enumerate(files)
        ]
    return Body(json, files)


def without_extras(body: Body) -> Body:
    """Leave out what Discord may have taken exception to; the words stay, and say which files are missing."""
    left = {name: value for name, value in body.json.items() if name not in ("embeds", "components")}
    left.pop("attachments", None)
    missing = ", ".join(file_name(one) for one in body.files)
    note = f"(could not be sent: {missing})"[:LONGEST] if missing else ""
    left["content"] = "\n".join(line for line in (body.json["content"], note) if line)[:LONGEST]
    return Body(left)


def has_extras(body: Body) -> bool:
    """Tell whether there is anything that could be left out."""
    return bool(body.files or body.json.get("embeds") or body.json.get("components"))


def components(choices: Collection[Choice]) -> list[dict[str, Any]]:
    """Lay out choices: up to five as buttons in a row, more as a list to select from."""
    if len(choices) <= MOST_BUTTONS:
        buttons = [
            {"type": 2, "style": 2, "label": one.label[:80], "custom_id": CHOICE + one.value}
            for one in choices
        ]
        return [{"type": 1, "components": buttons}]
    options = [{"label": one.label[:100], "value": one.value} for one in choices]
    select = {"type": 3, "custom_id": CHOICE, "options": options[:25], "min_values": 1, "max_values": 1}
    return [{"type": 1, "components": [select]}]


def file_name(attachment: Attachment) -> str:
    """Give the name under which a file is sent."""
    return (attachment.name or attachment.title or attachment.id or "file")[:200].replace("/", "_")
