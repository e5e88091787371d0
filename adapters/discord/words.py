"""What a message of Discord says, as one text: its words, what it quotes, forwards, shows and asks; pure."""

from collections.abc import Iterator

import discord

from bot import Attachment, MediaKind, shorten

LONGEST_QUOTE = 200


def words_of(message: discord.Message) -> str:
    """Write everything that a message says, a thing a line."""
    return "\n".join(line for line in _lines(message) if line.strip())


def files_of(message: discord.Message) -> tuple[Attachment, ...]:
    """List what came with a message, and with what it forwards."""
    sent = [*message.attachments, *(one for copy in message.message_snapshots for one in copy.attachments)]
    return tuple(_file(one) for one in sent)


def _lines(message: discord.Message) -> Iterator[str]:
    yield _quoted(message)
    yield message.clean_content
    for copy in message.message_snapshots:
        shown = "\n".join([f"[forwarded] {copy.content}", *map(_embed, copy.embeds)])
        yield "\n".join(f"> {line}" for line in shown.splitlines() if line.strip())  # nobody's own words
    if message.author.bot or message.webhook_id:  # a person's embeds are previews of the links they wrote
        for embed in message.embeds:
            yield _embed(embed)
    for sticker in message.stickers:
        yield f"[sticker: {sticker.name}]"
    if message.poll is not None:
        answers = " / ".join(answer.text for answer in message.poll.answers)
        yield f"[poll] {message.poll.question}: {answers}"


def _quoted(message: discord.Message) -> str:
    """Begin a reply with what it replies to."""
    said = message.reference.resolved if message.reference is not None else None
    if not isinstance(said, discord.Message):
        return ""
    return f"> {said.author.display_name}: {shorten(said.clean_content, LONGEST_QUOTE)}"


def _embed(embed: discord.Embed) -> str:
    parts = [
        embed.author.name,
        embed.title,
        embed.description,
        *(f"{field.name}: {field.value}" for field in embed.fields),
        embed.footer.text,
        embed.url,
    ]
    text = "\n".join(str(part) for part in parts if part)
    return f"[embed] {text}" if text else ""


def _file(sent: discord.Attachment) -> Attachment:
    return Attachment(
        id=str(sent.id),
        kind=_kind(sent),
        url=sent.url,
        content_type=sent.content_type or "",
        name=sent.filename,
        title=sent.title or sent.description or sent.filename,
    )


def _kind(sent: discord.Attachment) -> MediaKind:
    family = (sent.content_type or "").partition("/")[0].strip().lower()
    if sent.is_voice_message() or family == "audio":
        return MediaKind.AUDIO
    return MediaKind(family.upper()) if family in ("image", "video") else MediaKind.DOCUMENT
