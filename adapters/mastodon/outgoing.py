"""Replies and posts in Mastodon's plain text. Pure functions."""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from adapters.mastodon.incoming import Instance
from bot import Attachment, Content, MediaKind
from bot.text import split_at

RESERVED_LENGTH = 100  # for the mention of the addressee and a content warning
MAX_WARNING_LENGTH = 200
POSTED_KINDS = (MediaKind.IMAGE, MediaKind.VIDEO, MediaKind.AUDIO)
_URL = re.compile(r"https?://[!-~]+")  # what follows it in another script is no part of it
_MENTION = re.compile(r"(?<![=/\w])[@＠]+(?=\w)")  # as Mastodon detects them
_FULL_MENTION = re.compile(r"(?<![=/\w])(@\w[\w.-]*)@[\w.-]+")
_LEADING_MENTIONS = re.compile(r"\s*(?:@\w[\w.-]*(?:@[\w.-]*\w)?[,:]?(?:\s+|$))+")
_WARNING = re.compile(r"\s*(?:\[content warning:\s*([^\]\n]+)\]|CW:\s*([^\n]+)\n)\s*", re.IGNORECASE)


def count_characters(text: str, instance: Instance) -> int:
    """Return how long the server counts a text: any URL the same, and of a mention the name alone."""
    return len(_FULL_MENTION.sub(r"\1", _URL.sub("x" * instance.url_length, text)))


def _is_accepted(file: Attachment, instance: Instance) -> bool:
    return file.kind in POSTED_KINDS and (not instance.media_types or file.content_type in instance.media_types)


def split_reply(content: Content, instance: Instance, label: str = "") -> list[Content]:
    """Split a text into posts, the files with the first ones; the first post leaves room for a label.

    A video or a recording is the only file of its post. URLs of files without data are appended to the text, and the
    names of files that cannot be posted.
    """
    files = [item for item in content.attachments if item.data is not None]
    links = [item.url for item in content.attachments if item.data is None and item.url.startswith("http")]
    refused = [item.name or item.title or item.id for item in files if not _is_accepted(item, instance)]
    notes = [f"(could not be posted: {', '.join(refused)})"] if refused else []
    text = label + "\n".join(filter(None, [content.text.strip(), *links, *notes]))
    pieces = split_text(text, instance)
    pieces[0] = pieces[0].removeprefix(label)
    batches = _batch_files([item for item in files if _is_accepted(item, instance)], instance.max_attachments)
    pairs = zip_longest(pieces, batches, fillvalue=None)
    return [Content(text=piece or "", attachments=tuple(batch or ())) for piece, batch in pairs]


def _batch_files(files: Sequence[Attachment], size: int) -> list[list[Attachment]]:
    """Return which files go with which post."""
    batches: list[list[Attachment]] = []
    for file in files:
        is_alone = file.kind is not MediaKind.IMAGE or not batches or batches[-1][0].kind is not MediaKind.IMAGE
        if is_alone or len(batches[-1]) >= size:
            batches.append([])
        batches[-1].append(file)
    return batches


def split_text(text: str, instance: Instance) -> list[str]:
    """Split a text at the ends of sentences, else between words, else between characters."""
    pieces: list[str] = []
    maximum = max(instance.max_characters - RESERVED_LENGTH, RESERVED_LENGTH)
    while len(_URL.sub("x" * instance.url_length, text)) > maximum:
        piece, text = split_at(text, _fitting_length(text, maximum, instance))
        pieces.append(piece)
    return [*pieces, text]


def _fitting_length(text: str, maximum: int, instance: Instance) -> int:
    """Return how many characters fit into one post without splitting a URL."""
    total = position = 0
    for match in _URL.finditer(text):
        before = match.start() - position
        if total + before >= maximum:
            break
        if total + before + instance.url_length > maximum:
            return match.start() or maximum
        total, position = total + before + instance.url_length, match.end()
    return min(position + maximum - total, len(text))


def take_warning(text: str) -> tuple[str, str]:
    """Return the content warning that a text begins with, and the rest: a line `CW: …` or `[content warning: …]`."""
    match = _WARNING.match(text)
    if match is None or match.end() == len(text):
        return "", text
    return (match[1] or match[2]).strip(), text[match.end() :]


def write_post(
    text: str, addressees: Iterable[str], warning: str, instance: Instance, label: str = ""
) -> tuple[str, str]:
    """Return text and content warning of a post that mentions the addressees before the label, and no one else.

    So a model cannot notify strangers: the @ of any other mention is removed. The warning is cut where it does not fit.
    """
    names = list(dict.fromkeys(addressees))
    if names:
        match = _LEADING_MENTIONS.match(text)
        text = text[match.end() :] if match else text
    text = " ".join([*(f"@{name}" for name in names), label + _MENTION.sub("", text).strip()]).strip()
    room = min(MAX_WARNING_LENGTH, max(instance.max_characters - count_characters(text, instance), 0))
    return text, warning[:room]
