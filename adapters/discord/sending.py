"""Sending, editing and finding messages: replies as message parts and request bodies.

Responses to slash commands and buttons are sent with the token of their interaction.
"""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any

import discord
from discord.http import Route
from discord.utils import parse_time, time_snowflake

import bot.platform as bp
from adapters.discord import errors
from bot import Attachment, Choice, Clock, CommandResponse, Content, MediaKind, crash_point
from bot.text import grapheme_boundary_before, is_blank, shorten

MAX_TEXT_LENGTH = 2000
MAX_THREAD_NAME = 100
MAX_TEXT_LENGTH_WITH_FILES = 1700  # leaves room to list files that could not be sent
MAX_FILES = 10
EXTRAS = ("embeds", "components", "attachments")
MAX_PINGS = 3
EMOJI_STYLE = "\ufe0f"  # shows a character as an emoji; Discord takes some emoji with it only, others without
MAX_BUTTONS = 5
CHOICE_PREFIX = "choice:"
_MENTION = re.compile(r"<@!?(\d{1,20})>")
NO_MENTIONS: dict[str, Any] = {"parse": [], "users": [], "roles": [], "replied_user": False}
FENCE = "```"
FENCE_END = f"\n{FENCE}"
MAX_FENCE_LANGUAGE = 24  # language of a fence; anything longer is text
SPOILER = "||"
_FENCE = re.compile(rf"{FENCE}([\w+#.-]{{0,{MAX_FENCE_LANGUAGE}}}(?=\n))?")
_FENCE_CLOSING = re.compile(rf"\s*{FENCE}[ \t]*(?:\n|\Z)")
_FENCE_LINE = re.compile(r"([ \t]*)(`{3,}|~{3,})([^`\n]*)")
_CODE_OR_SPOILER = re.compile(rf"{FENCE}.*?(?:{FENCE}|\Z)|`[^`\n]+`|(\|\|.+?\|\|)", re.DOTALL)
_UNBREAKABLE = re.compile(  # must not be split: spoiler marks, fences, masked links, URLs, mentions, emoji
    rf"\|\||{FENCE}(?:[\w+#.-]*\n)?|\[[^\]\n]*\]\([^)\s]*\)|<?https?://[^\s>]+>?"
    r"|<(?:@[!&]?|#|a?:\w+:|t:|id:|/[^:>\n]+:)[\w:-]*>"
)


@dataclass(frozen=True, slots=True)
class MessageBody:
    """The JSON and the files of a message request; that of an edit names all extras, for Discord keeps the others."""

    json: dict[str, Any]
    files: tuple[Attachment, ...] = ()
    is_edit: bool = False

    @property
    def form_fields(self) -> list[dict[str, Any]]:
        """Return the files as fields of a multipart form."""
        return [
            {
                "name": f"files[{index}]",
                "value": file.data,
                "filename": file_name_of(file),
                "content_type": file.content_type or "application/octet-stream",
            }
            for index, file in enumerate(self.files)
        ]


def split_reply(content: Content) -> list[Content]:
    """Split a reply into parts of at most 2,000 characters and ten files; files and choices go with the last parts."""
    files = content.attachments
    links = [file.url for file in files if file.data is None and file.kind is not MediaKind.IMAGE and file.url]
    pieces = split_text(with_discord_fences("\n".join([content.text, *links])), MAX_TEXT_LENGTH)
    sendable = tuple(file for file in files if file.data is not None or (file.kind is MediaKind.IMAGE and file.url))
    contents = [Content(text=piece) for piece in pieces]
    if not contents or (sendable and len(contents[-1].text) > MAX_TEXT_LENGTH_WITH_FILES):
        contents.append(Content())
    first, *others = [sendable[start : start + MAX_FILES] for start in range(0, len(sendable), MAX_FILES)] or [()]
    contents[-1] = replace(contents[-1], attachments=first)
    contents += [Content(attachments=files) for files in others]
    contents[-1] = replace(contents[-1], choices=content.choices)
    return contents


def build_body(delivery: bp.Delivery, user_ids: Collection[str]) -> MessageBody:
    """Build the body of a new message; mentions notify `user_ids` only, at most MAX_PINGS."""
    body = build_visible_body(delivery.content, user_ids)
    body.json["nonce"] = delivery.id
    body.json["enforce_nonce"] = True
    if delivery.reply_to.isdigit():
        body.json["message_reference"] = {"message_id": delivery.reply_to, "fail_if_not_exists": False}
        body.json["allowed_mentions"]["replied_user"] = True
    return body


def build_edit_body(content: Content, user_ids: Collection[str]) -> MessageBody:
    """Build the body of an edit; what the content does not have is removed from the message."""
    body = build_visible_body(content, user_ids)
    return MessageBody({**_no_extras(), **body.json}, body.files, is_edit=True)


def build_visible_body(content: Content, user_ids: Collection[str] = ()) -> MessageBody:
    """Build what a new message and an edit have in common."""
    mentioned = dict.fromkeys(_MENTION.findall(content.text))
    notified = [item for item in mentioned if item in user_ids][:MAX_PINGS]
    files = tuple(item for item in content.attachments if item.data is not None)
    pictures = [item for item in content.attachments if item.data is None]
    json: dict[str, Any] = {"content": content.text, "allowed_mentions": {**NO_MENTIONS, "users": notified}}
    if pictures:
        json["embeds"] = [{"image": {"url": item.url}} for item in pictures]
    if content.choices:
        json["components"] = build_components(content.choices)
    if files:
        json["attachments"] = [
            {"id": index, "filename": file_name_of(item), "description": item.description[:1024]}
            for index, item in enumerate(files)
        ]
    return MessageBody(json, files)


def without_reference(body: MessageBody) -> MessageBody:
    """Return the body as no reply."""
    return replace(body, json={name: value for name, value in body.json.items() if name != "message_reference"})


def without_files(body: MessageBody) -> MessageBody:
    """Return the body with the names of its files in their place."""
    return replace(_with_line(body, _missing_note(body), "attachments"), files=())


def without_embeds(body: MessageBody) -> MessageBody:
    """Return the body with the links to its pictures in their place."""
    links = [embed["image"]["url"] for embed in body.json["embeds"]]
    return _with_line(body, "\n".join(links), "embeds")


def in_channel_of(thread_id: str, body: MessageBody) -> MessageBody:
    """Return the body as no reply, for the channel of a thread, with a link to the thread."""
    body, link = without_reference(body), _thread_link(thread_id)
    content = body.json["content"]
    return replace(body, json={**body.json, "content": link + content}) if _fits(link + content) else body


def is_text_of(text: str, delivery: bp.Delivery) -> bool:
    """Return whether a message has the text of a part, also with what `in_channel_of` and its like add."""
    shown = text.removeprefix(_thread_link(delivery.target))
    return shown in delivery.possible_texts or any(
        sent and shown.startswith(f"{sent}\n") for sent in delivery.possible_texts
    )


def _thread_link(thread_id: str) -> str:
    return f"<#{thread_id}>\n"


def _fits(text: str) -> bool:
    return len(text) <= MAX_TEXT_LENGTH


def _with_line(body: MessageBody, line: str, replaced: str) -> MessageBody:
    """Return the body with a line, if it has room, in the place of a field."""
    fields = {name: value for name, value in body.json.items() if name != replaced}
    fields |= {replaced: []} if body.is_edit else {}
    text = "\n".join(filter(None, [body.json["content"], line]))
    return replace(body, json={**fields, "content": text if _fits(text) else body.json["content"]})


def _missing_note(body: MessageBody) -> str:
    missing_names = ", ".join(file_name_of(file) for file in body.files)
    return f"(could not be sent: {missing_names})"[:MAX_TEXT_LENGTH] if missing_names else ""


def without_extras(body: MessageBody) -> MessageBody:
    """Return the body without embeds, components and files; the text lists the missing files."""
    fields = {name: value for name, value in body.json.items() if name not in EXTRAS}
    fields |= _no_extras() if body.is_edit else {}
    fields["content"] = "\n".join(filter(None, [body.json["content"], _missing_note(body)]))[:MAX_TEXT_LENGTH]
    return MessageBody(fields, is_edit=body.is_edit)


def _no_extras() -> dict[str, Any]:
    return {name: [] for name in EXTRAS}


def has_extras(body: MessageBody) -> bool:
    """Return whether `without_extras` would remove anything."""
    return bool(body.files or body.json.get("embeds") or body.json.get("components"))


def build_components(choices: Collection[Choice]) -> list[dict[str, Any]]:
    """Return choices as components: up to five buttons in a row, more as a select menu."""
    if len(choices) <= MAX_BUTTONS:
        buttons = [
            {"type": 2, "style": 2, "label": choice.label[:80], "custom_id": CHOICE_PREFIX + choice.value}
            for choice in choices
        ]
        return [{"type": 1, "components": buttons}]
    options = [{"label": choice.label[:100], "value": choice.value} for choice in choices]
    menu = {"type": 3, "custom_id": CHOICE_PREFIX, "options": options[:25], "min_values": 1, "max_values": 1}
    return [{"type": 1, "components": [menu]}]


def file_name_of(attachment: Attachment) -> str:
    """Return the name under which a file is sent."""
    return (attachment.name or attachment.title or attachment.id or "file")[:200].replace("/", "_")


def with_discord_fences(text: str) -> str:
    """Return the text with fences of three backticks, the only ones that Discord knows.

    A block between tildes or more backticks may contain such fences: their backticks are separated by an invisible
    space. Tildes that nothing closes are text.
    """
    lines = text.split("\n")
    fences = [_FENCE_LINE.fullmatch(line) for line in lines]
    last_tildes = max(
        (i for i, match in enumerate(fences) if match and match[2][0] == "~" and not match[3].strip()), default=-1
    )
    opening, fence = -1, ""
    for index, (line, match) in enumerate(zip(lines, fences, strict=True)):
        if not fence:
            if match and (match[2][0] == "`" or index < last_tildes):
                opening, fence = index, match[2]
        elif fence == FENCE:
            fence = "" if line.rstrip().endswith(FENCE) else fence  # models close fences at ends of lines
        elif match and match[2].startswith(fence) and not match[3].strip():
            _rewrite_fences(lines, fences, opening, index + 1)
            lines[index], fence = f"{match[1]}{FENCE}", ""
    if fence and fence != FENCE:
        _rewrite_fences(lines, fences, opening, len(lines))
    return "\n".join(lines)


def _rewrite_fences(lines: list[str], fences: Sequence[re.Match[str] | None], opening: int, end: int) -> None:
    """Write the first line of a code block with the fence of Discord, and the other lines without it."""
    match = fences[opening]
    assert match is not None, "a block begins with a fence"
    lines[opening] = f"{match[1]}{FENCE}{''.join(match[3].split()[:1])}"
    for index in range(opening + 1, end):
        lines[index] = re.sub("`(?=``)", "`\u200b", lines[index])


def split_text(text: str, limit: int) -> list[str]:
    """Split a text into pieces of at most `limit` characters; code blocks and spoilers continue in the next piece."""
    return [piece for piece in _split_pieces(text, limit) if not is_blank(piece)]


def _split_pieces(text: str, limit: int) -> Iterator[str]:
    spoilers = _find_spoilers(text)
    start, reopened = 0, ""
    while len(reopened) + len(text) - start > limit:
        available = limit - len(reopened) - len(FENCE_END) - (len(SPOILER) if spoilers else 0)
        length, gap_length = _find_cut(text[start:], available)
        end, resumed_at = start + length, start + length + gap_length
        first, last = next((span for span in spoilers if span[0] < end < span[1]), (0, 0))
        if last and text[first:end].strip() == SPOILER and first > start:  # nothing of it would be in this piece
            end = resumed_at = first
        elif last and text[resumed_at:last].strip() == SPOILER:  # nor in the next: the mark ends this one
            resumed_at = last
        spoiler = SPOILER if first < end < last else ""
        piece = reopened + text[start:end]
        fence = reopening = _open_fence(piece)
        block = piece.rfind(FENCE)
        if fence and block > len(reopened) and piece[block:].rstrip() == fence.rstrip():  # it begins in the next piece
            end = resumed_at = start + block - len(reopened)
            piece, fence, reopening = piece[:block], "", ""
        elif fence and (closing := _FENCE_CLOSING.match(text, resumed_at)):  # nothing of it is left for the next piece
            resumed_at, reopening = closing.end(), ""
        yield piece + (FENCE_END if fence else "") + spoiler
        start, reopened = resumed_at, (spoiler if resumed_at < last else "") + reopening
    yield reopened + text[start:]


def _find_spoilers(text: str) -> list[tuple[int, int]]:
    """Return where spoilers begin and end, with their marks; in code there are none."""
    return [match.span() for match in _CODE_OR_SPOILER.finditer(text) if match[1]]


def _find_cut(text: str, available: int) -> tuple[int, int]:
    """Return where a piece of at most `available` characters ends, and the length of the gap after it."""
    spans = [match.span() for match in _UNBREAKABLE.finditer(text, 0, 2 * available) if len(match[0]) <= available]
    for gap in ("\n\n", "\n", " "):
        position = text.rfind(gap, 1, available + len(gap))
        while position > 0 and (start := _enclosing_start(spans, position)):
            position = text.rfind(gap, 1, start)
        if position > (0 if gap == " " else available // 3):  # a short piece is worse than a split line
            return position, len(gap)
    position = grapheme_boundary_before(text, available) or available
    return (_enclosing_start(spans, position) or position), 0


def _enclosing_start(spans: list[tuple[int, int]], position: int) -> int:
    """Return the start of the unbreakable span around a position; 0 if there is none."""
    return next((start for start, end in spans if start < position < end), 0)


def _open_fence(piece: str) -> str:
    """Return the line that reopens a code block left open by a piece; empty if none is open."""
    opening = ""
    for match in _FENCE.finditer(piece):
        opening = "" if opening else f"{FENCE}{match[1] or ''}\n"
    return opening


logger = logging.getLogger(__name__)

SendRequest = Callable[..., Awaitable[Any]]

NONCE_WINDOW = timedelta(seconds=100)  # Discord promises "a few minutes"; 120 s is undisputed
CLOCK_SKEW = timedelta(seconds=60)  # between Discord's clock and ours
PAGE_SIZE, MAX_PAGES = 100, 5
MAX_CHANNELS, MAX_NONCES = 2000, 1000
MESSAGE_PATH = "/channels/{channel_id}/messages/{message_id}"
REACTION_PATH = f"{MESSAGE_PATH}/reactions/{{emoji}}/@me"
THREADS_PATH = f"{MESSAGE_PATH}/threads"
PUBLIC_THREADS = (10, 11)
FAILURES = (*errors.REQUEST_ERRORS, ValueError)  # ValueError: a body that is not JSON


class MessageSender:
    """Sends, edits and reconciles the deliveries of one account. Raises DeliveryError."""

    def __init__(self, send_request: SendRequest, clock: Clock) -> None:
        self._send_request = send_request
        self._known_people = bp.KnownPeople[str]()
        self._clock = clock
        # by channel: why it refuses messages; it is left alone until a message is received from it
        self._unwritable = bp.BoundedDict[str, str](MAX_CHANNELS)
        self._parents = bp.BoundedDict[str, str](MAX_CHANNELS)  # by thread: the channel in which its answers are sent
        self._problems = bp.ChannelProblems(logger, "Discord channel")
        self._nonces = bp.BoundedSet[str](MAX_NONCES)

    def has_sent(self, nonce: str) -> bool:
        """Return whether a message with this nonce was sent here lately."""
        return nonce in self._nonces

    def note(self, message: discord.Message) -> None:
        """Note a message that was received: its channel takes messages again, its author may be mentioned there."""
        channel_id = str(message.channel.id)
        self._unwritable.pop(channel_id, None)
        self._known_people.note_user(channel_id, str(message.author.id))

    def known_people_of(self, channel_id: str) -> Collection[str]:
        """Return the users who may be mentioned in a channel."""
        return self._known_people.of(channel_id)

    async def deliver(self, delivery: bp.Delivery, bot_id: int) -> str:
        """Send a part; if an earlier attempt is too old for its nonce, search for it first.

        Where the channel cannot be read, it is sent all the same: it was not sent, or an operator decided so.
        """
        if delivery.attempts > 1 and not self._is_protected(delivery):
            with suppress(bp.DeliveryHeld):
                if message_id := await self.find_message(
                    delivery, partial(_is_same_message, delivery=delivery, bot_id=bot_id)
                ):
                    return message_id
        return await self._send(delivery, bot_id)

    async def reconcile(self, delivery: bp.Delivery, bot_id: int) -> str:
        """Resend an unclear part while its nonce protects it; after that, search for it."""
        if self._is_protected(delivery):
            try:
                return await self._send(delivery, bot_id)
            except bp.NotSent as error:
                raise bp.DeliveryUnknown(str(error), retry_after=error.retry_after) from error
        message_id = await self.find_message(delivery, partial(_is_same_message, delivery=delivery, bot_id=bot_id))
        if not message_id:
            raise bp.NotSent("it is not in the channel")
        return message_id

    async def edit(self, delivery: bp.Delivery, bot_id: int) -> str:
        """Edit the message that a part replaces; an empty part deletes it.

        Where the last edit of a streamed reply is refused, the reply is sent as a new message instead, and what was
        shown of it is deleted.
        """
        content = delivery.content
        channel_id, _, message_id = delivery.replaces_external_id.rpartition("/")
        ids = {"channel_id": channel_id or delivery.target, "message_id": message_id}
        if not (content.text or content.attachments or content.choices):
            try:
                await self.send_unarchived(Route("DELETE", MESSAGE_PATH, **ids))
            except MessageNotFound:
                logger.debug("message %s was deleted already", delivery.replaces_external_id)
            return delivery.replaces_external_id
        body = build_edit_body(content, self._known_people.of(delivery.target))
        try:
            await self.send_in_steps(delivery, Route("PATCH", MESSAGE_PATH, **ids), body)
        except MessageNotFound:
            raise bp.MessageGone("the message was deleted in the channel: it is not sent again") from None
        except Refused as error:
            if delivery.draft_id in ("", delivery.id):  # it replaces a whole message, or more of the reply follows
                raise
            logger.info("part %s is sent as a new message: %s", delivery.id, error)
        else:
            return delivery.replaces_external_id
        draft = Route("DELETE", MESSAGE_PATH, **ids)
        try:
            new_id = await self.deliver(delivery, bot_id)
        except bp.Undeliverable:
            await self._delete_quietly(draft)
            raise
        await self._delete_quietly(draft)
        return new_id

    async def react(self, delivery: bp.Delivery) -> str:
        """Set a reaction, after the one that it replaces was removed, and return its emoji; idempotent."""
        emoji, earlier = delivery.content.text, delivery.replaces_external_id
        ids = {"channel_id": delivery.target, "message_id": delivery.reply_to}
        crash_point("react.pre_write")
        try:
            if earlier and earlier != emoji:
                await self._remove_reaction(Route("DELETE", REACTION_PATH, **ids, emoji=earlier.strip("<>")))
            if not emoji:
                return ""
            try:
                await self.send_unarchived(Route("PUT", REACTION_PATH, **ids, emoji=emoji.strip("<>")))
            except Refused as error:
                if error.code != errors.UNKNOWN_EMOJI or len(emoji) > 2:
                    raise
                emoji = emoji.removesuffix(EMOJI_STYLE) if emoji.endswith(EMOJI_STYLE) else f"{emoji}{EMOJI_STYLE}"
                await self.send_unarchived(Route("PUT", REACTION_PATH, **ids, emoji=emoji))
        except MessageNotFound:
            raise bp.MessageGone("the message was deleted in the channel") from None
        crash_point("react.post_write")
        return emoji

    async def open_thread(self, delivery: bp.Delivery) -> str:
        """Open a thread at a message and return its id, which is that of the message; idempotent.

        A message has one thread at most: one that has a thread keeps it.
        """
        if not delivery.reply_to.isdecimal():
            raise bp.MessageGone("there is no message at which a thread could be opened")
        ids = {"channel_id": delivery.target, "message_id": delivery.reply_to}
        crash_point("thread.pre_write")
        try:
            await self._request(Route("POST", THREADS_PATH, **ids), MessageBody({"name": thread_name_of(delivery)}))
        except MessageNotFound:
            raise bp.MessageGone("the message was deleted in the channel") from None
        except Refused as error:
            if error.code == errors.THREAD_EXISTS:
                return delivery.reply_to
            if error.code != errors.MISSING_PERMISSIONS:
                raise
            problem = "the bot may not open threads there: give it the permission Create Public Threads"
            self._problems.report(delivery.target, problem)
            raise bp.Undeliverable(problem) from None
        return delivery.reply_to

    async def _remove_reaction(self, route: Route) -> None:
        try:
            await self.send_unarchived(route)
        except Refused as error:
            if error.code != errors.UNKNOWN_EMOJI:  # a moderator has removed it
                raise

    async def _delete_quietly(self, route: Route) -> None:
        try:
            await self.send_unarchived(route)
        except bp.DeliveryError as error:
            logger.info("the beginning of a reply stays in channel %s: %s", route.channel_id, error)

    def _is_protected(self, delivery: bp.Delivery) -> bool:
        """Return whether Discord still deduplicates the part by its nonce."""
        return self._clock() - (delivery.first_attempt_at or delivery.created_at) <= NONCE_WINDOW

    async def _send(self, delivery: bp.Delivery, bot_id: int) -> str:
        """Send a part; Discord answers a repeated nonce with the existing message.

        What is refused in a public thread is sent in its channel; the id has that channel's before it then.
        """
        if cause := self._unwritable.get(delivery.target):
            raise bp.Undeliverable(cause)
        body = build_body(delivery, self._known_people.of(delivery.target))
        self._nonces.add(delivery.id)
        crash_point("send.pre_write")
        try:
            return await self._create(delivery, delivery.target, body)
        except Refused as error:
            refusal = error
        channel = await self.read(Route("GET", "/channels/{channel_id}", channel_id=delivery.target))
        await self._check_timeout(channel, bot_id)
        parent_id = str(channel.get("parent_id") or "") if channel.get("type") in PUBLIC_THREADS else ""
        if parent_id and refusal.is_of_channel:
            try:
                message_id = await self._create(delivery, parent_id, in_channel_of(delivery.target, body))
            except Refused:
                logger.debug("part %s is refused in channel %s too", delivery.id, parent_id)
            else:
                self._parents[delivery.target] = parent_id
                self._problems.report(
                    delivery.target, f"{refusal}: answers for this thread are sent in channel {parent_id}"
                )
                return f"{parent_id}/{message_id}"
        if refusal.is_of_channel:
            self._unwritable[delivery.target] = str(refusal)
        raise refusal

    async def _create(self, delivery: bp.Delivery, channel_id: str, body: MessageBody) -> str:
        route = Route("POST", "/channels/{channel_id}/messages", channel_id=channel_id)
        return parse_message_id(await self.send_in_steps(delivery, route, body))

    async def send_in_steps(self, delivery: bp.Delivery, route: Route, body: MessageBody) -> Any:
        """Send a body; leave out what Discord refuses of it, one after another, and report what the bot may not do."""
        missing: list[str] = []
        while True:
            try:
                response = await self.send_unarchived(route, body)
            except Refused as error:
                step = _next_step(error, body)
                if step is None:
                    raise
                body, permission = step
                missing += [permission] * bool(permission)
                logger.info("part %s is sent with less: %s", delivery.id, error)
                continue
            for permission in missing:
                problem = f"messages there lack what needs the permission {permission}: give it to the bot"
                self._problems.report(str(route.channel_id), problem)
            return response

    async def send_unarchived(self, route: Route, body: MessageBody | None = None) -> Any:
        """Send a request; if its thread is archived, reopen that first."""
        try:
            return await self._request(route, body)
        except Refused as error:
            if error.code != errors.THREAD_ARCHIVED:
                raise
            thread = Route("PATCH", "/channels/{channel_id}", channel_id=route.channel_id)
            try:
                await self._request(thread, MessageBody({"archived": False}))
            except bp.DeliveryError:
                raise error from None
        return await self._request(route, body)

    async def _request(self, route: Route, body: MessageBody | None = None) -> Any:
        try:
            return await send_body(self._send_request, route, body)
        except errors.ErrorResponse as error:
            if error.code == errors.UNKNOWN_MESSAGE:
                raise MessageNotFound(str(error)) from error
            cause = errors.to_delivery_error(error)
            raise Refused(str(cause), error) if isinstance(cause, bp.Undeliverable) else cause from error
        except FAILURES as error:
            raise errors.to_delivery_error(error) from error

    async def read(self, route: Route) -> dict[str, Any]:
        """Return an object of Discord's; empty where it cannot be read."""
        try:
            response = await self._send_request(route)
        except FAILURES as error:
            logger.debug("%s could not be read: %s", route.url, error)
            return {}
        return response if isinstance(response, dict) else {}

    async def _check_timeout(self, channel: Mapping[str, Any], bot_id: int) -> None:
        """Raise NotSent while a moderator's timeout keeps the bot from writing in the server of a channel."""
        if not (guild_id := channel.get("guild_id")):
            return
        path = "/guilds/{guild_id}/members/{user_id}"
        member = await self.read(Route("GET", path, guild_id=guild_id, user_id=bot_id))
        until = parse_time(member.get("communication_disabled_until"))
        seconds = (until - self._clock()).total_seconds() if until is not None else 0.0
        if until is not None and seconds > 0:
            cause = f"a moderator of the server has given the bot a timeout until {until:%Y-%m-%d %H:%M} UTC"
            self._problems.report(str(channel["id"]), cause)
            raise bp.NotSent(cause, retry_after=seconds)

    async def find_message(self, delivery: bp.Delivery, is_same: Callable[[Any], bool]) -> str:
        """Search the messages since the first attempt; return the id of the one, empty where there is none.

        Raises DeliveryUnknown if they cannot be read now, DeliveryHeld if they never can be.
        """
        channel_id = self._parents.get(delivery.target, delivery.target)
        after_id = time_snowflake((delivery.first_attempt_at or delivery.created_at) - CLOCK_SKEW)
        for _ in range(MAX_PAGES):
            page = await self._fetch_page(channel_id, {"after": str(after_id), "limit": str(PAGE_SIZE)})
            if not page and not await self._fetch_page(channel_id, {"limit": "1"}):
                raise bp.DeliveryHeld("the channel shows no message: without Read Message History none can be searched")
            for message in page:
                if is_same(message):
                    message_id = str(message["id"])
                    return message_id if channel_id == delivery.target else f"{channel_id}/{message_id}"
            if len(page) < PAGE_SIZE:
                return ""
            after_id = max(int(message["id"]) for message in page)
        raise bp.DeliveryHeld("too many messages were sent since to search them all")

    async def _fetch_page(self, channel_id: str, query: Mapping[str, str]) -> list[Any]:
        route = Route("GET", "/channels/{channel_id}/messages", channel_id=channel_id)
        try:
            page: list[Any] = await self._send_request(route, params=query)
        except errors.ErrorResponse as error:
            if error.is_final:
                raise bp.DeliveryHeld(f"the channel cannot be read to see whether it arrived: {error}") from error
            raise _to_not_searched(error) from error
        except FAILURES as error:
            raise _to_not_searched(error) from error
        return page


def thread_name_of(delivery: bp.Delivery) -> str:
    """Return the name of the thread that a delivery opens."""
    return shorten(delivery.content.text, MAX_THREAD_NAME)


class Refused(bp.Undeliverable):
    """Discord refuses a request for good."""

    def __init__(self, cause: str, error: errors.ErrorResponse) -> None:
        super().__init__(cause)
        self.status, self.code = error.status, error.code

    @property
    def is_of_channel(self) -> bool:
        """Whether it concerns the channel, and not what is sent."""
        return self.status in (403, 404) or self.code in (errors.THREAD_ARCHIVED, errors.THREAD_LOCKED)


class MessageNotFound(bp.Undeliverable):
    """The message does not exist any more."""


def _to_not_searched(error: Exception) -> bp.DeliveryUnknown:
    cause = errors.to_delivery_error(error)
    retry_after = cause.retry_after if isinstance(cause, bp.NotSent | bp.DeliveryUnknown) else None
    return bp.DeliveryUnknown(f"it could not be searched for yet: {cause}", retry_after=retry_after)


def _next_step(error: Refused, body: MessageBody) -> tuple[MessageBody, str] | None:
    """Return what to send instead of a refused body, and the permission that the bot lacks; None if nothing is left."""
    if error.code == errors.NO_MESSAGE_HISTORY and "message_reference" in body.json:
        return without_reference(body), "Read Message History"
    if error.code == errors.MISSING_PERMISSIONS and body.files:
        return without_files(body), "Attach Files"
    if error.code == errors.MISSING_PERMISSIONS and body.json.get("embeds"):
        return without_embeds(body), "Embed Links"
    if error.status in (400, 413) and not error.is_of_channel and has_extras(body):
        return without_extras(body), ""
    return None


async def send_body(send_request: SendRequest, route: Route, body: MessageBody | None) -> Any:
    """Send a request with a body, as a form where it has files."""
    if body is None:
        return await send_request(route)
    if not body.files:
        return await send_request(route, json=body.json)
    payload = {"name": "payload_json", "value": json.dumps(body.json)}
    return await send_request(route, form=[payload, *body.form_fields])


def parse_message_id(response: Any) -> str:
    if not isinstance(response, dict) or not str(response.get("id", "")).isdigit():
        raise bp.DeliveryUnknown("Discord's response has no message id")
    return str(response["id"])


def _is_same_message(message: Any, delivery: bp.Delivery, bot_id: int) -> bool:
    if not isinstance(message, dict) or str(message.get("author", {}).get("id")) != str(bot_id):
        return False
    if message.get("nonce"):
        return str(message["nonce"]) == delivery.id
    reference = str((message.get("message_reference") or {}).get("message_id", ""))
    expected_reference = delivery.reply_to if delivery.reply_to.isdigit() else ""
    is_answer = reference in (expected_reference, "")  # what the bot may not do in a channel is left out
    return is_answer and has_files_of(message, delivery) and is_text_of(str(message.get("content")), delivery)


def has_files_of(message: Mapping[str, Any], delivery: bp.Delivery) -> bool:
    """Return whether a message has the files of a part, or none, where the bot may not send any."""
    received = [attachment.get("filename") for attachment in message.get("attachments") or ()]
    return received in ([file_name_of(file) for file in delivery.content.attachments if file.data is not None], [])


ADDRESS_PREFIX = "interaction/"
KIND_KEY = "interaction"
LIFETIME = timedelta(minutes=15)  # of an interaction
EPHEMERAL_FLAG = 64
OUTSIDE_PREFIX = "outside/"  # of the id of a room, before the id of its interaction
FOLLOW_UP_PATH = "/webhooks/{webhook_id}/{webhook_token}"
ORIGINAL_PATH = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
EXPIRED = "the interaction has expired: Discord takes a response for fifteen minutes"
UNCLEAR = "it is unknown whether it arrived, and Discord cannot be asked: it is not sent again"


class ResponseKind(StrEnum):
    """How a part of a response is shown: in place of "thinking…", or as a further message to the sender or to all."""

    ORIGINAL = "original"
    PRIVATE = "private"
    PUBLIC = "public"


def build_address(application_id: int, token: str) -> str:
    """Return the target of the deliveries of a response."""
    return f"{ADDRESS_PREFIX}{application_id}/{token}"


def is_outside(delivery: bp.Delivery) -> bool:
    """Return whether a delivery answers a question from outside."""
    return delivery.target.startswith(OUTSIDE_PREFIX)


def is_response(delivery: bp.Delivery) -> bool:
    """Return whether a delivery is sent with the token of an interaction."""
    return delivery.target.startswith(ADDRESS_PREFIX)


def split_response(response: CommandResponse, first: ResponseKind, others: ResponseKind) -> list[Content]:
    """Return the parts of a response; choices go with the last."""
    pieces = split_text(response.text, MAX_TEXT_LENGTH)
    return [
        Content(
            text=text,
            choices=response.choices if number == len(pieces) else (),
            metadata={KIND_KEY: first if number == 1 else others},
        )
        for number, text in enumerate(pieces, 1)
    ]


def build_response_body(text: str, choices: Sequence[Choice] = ()) -> dict[str, Any]:
    """Return the JSON of a message that answers an interaction, without notifications."""
    return {
        "content": text,
        "allowed_mentions": dict(NO_MENTIONS),
        "components": build_components(choices) if choices else [],
    }


class ResponseSender:
    """Sends the deliveries of responses. Raises DeliveryError."""

    def __init__(self, send_request: SendRequest, clock: Clock) -> None:
        self._send_request, self._clock = send_request, clock

    async def deliver(self, delivery: bp.Delivery) -> str:
        """Show a part, and return the id of its message."""
        if self._clock() - delivery.created_at > LIFETIME:
            raise bp.Undeliverable(EXPIRED)
        webhook_id, _, token = delivery.target.removeprefix(ADDRESS_PREFIX).partition("/")
        ids = {"webhook_id": webhook_id, "webhook_token": token}
        kind, body = _kind_of(delivery), build_response_body(delivery.content.text, delivery.content.choices)
        if kind is ResponseKind.ORIGINAL:
            message = await self._request(Route("PATCH", ORIGINAL_PATH, **ids), json=body)
        else:
            if kind is ResponseKind.PUBLIC and delivery.part == 0:
                await self._delete(Route("DELETE", ORIGINAL_PATH, **ids))
            body["flags"] = EPHEMERAL_FLAG if kind is ResponseKind.PRIVATE else 0
            message = await self._request(Route("POST", FOLLOW_UP_PATH, **ids), json=body)
        return str(message.get("id", "")) if isinstance(message, dict) else ""

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Show a part again whose outcome is unknown, where that cannot be seen twice."""
        if _kind_of(delivery) is not ResponseKind.ORIGINAL:
            raise bp.Undeliverable(UNCLEAR)
        return await self.deliver(delivery)

    async def _delete(self, route: Route) -> None:
        try:
            await self._request(route)
        except bp.Undeliverable as error:
            if str(error) == EXPIRED:
                raise

    async def _request(self, route: Route, **arguments: Any) -> Any:
        try:
            return await self._send_request(route, **arguments)
        except (*errors.REQUEST_ERRORS, ValueError) as error:
            raise to_response_error(error) from error


def to_response_error(error: Exception) -> bp.DeliveryError:
    """Return the DeliveryError that a failed request with the token of an interaction means for its part."""
    is_expired = isinstance(error, errors.ErrorResponse) and not error.is_foreign and error.status == 401
    return bp.Undeliverable(EXPIRED) if is_expired else errors.to_delivery_error(error)


def _kind_of(delivery: bp.Delivery) -> ResponseKind:
    return ResponseKind(delivery.content.metadata[KIND_KEY])
