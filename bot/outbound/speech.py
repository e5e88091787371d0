"""`Speech`: adds the spoken form to a reply that answers a voice message, or to every one of a character."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.domain.content import SPEECH_ID, Attachment, Content, MediaKind
from bot.domain.environment import Room
from bot.errors import ModelError
from bot.models.router import ModelRouter
from bot.models.types import ModelType, SpeechRequest

logger = logging.getLogger(__name__)
MAX_AUDIO_BYTES = 8 * 2**20  # Discord takes ten million bytes
SUFFIXES = {"audio/ogg": ".ogg", "audio/mpeg": ".mp3", "audio/wav": ".wav", "audio/mp4": ".m4a", "audio/flac": ".flac"}
CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*\)")
URL = re.compile(r"<?\bh(?:tt|xx)ps?://\S+")
LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6}|>|[-*+]|\|)[ \t]+", re.MULTILINE)
EMPHASIS = re.compile(r"[*`~|]+|(?<!\w)_+|_+(?!\w)")


class VoiceReplies(StrEnum):
    """Which replies are spoken, beside being written."""

    NEVER = "never"
    VOICE = "voice"
    ALWAYS = "always"


class Speech:
    """Speaks replies of one agent on the platforms that play recordings, if there is a model that can.

    `find_adapter` returns the adapter of a platform, `filter_text` what of a text may be sent to a room. `mode` may be
    changed while the agent runs.
    """

    def __init__(
        self,
        models: ModelRouter,
        find_adapter: Callable[[str], Adapter | None],
        filter_text: Callable[[str, UUID], str],
        *,
        mode: VoiceReplies,
        max_length: int,
    ) -> None:
        self._models = models
        self._find_adapter, self._filter_text = find_adapter, filter_text
        self.mode, self._max_length = mode, max_length

    def is_due(self, room: Room, content: Content) -> bool:
        """Return whether a reply in a room to this content is spoken, unless its own text forbids it."""
        if self.mode is VoiceReplies.NEVER or (self.mode is VoiceReplies.VOICE and not _is_transcribed(content)):
            return False
        return bool(self._voice_type(room)) and self._models.has_handler_for(ModelType.TEXT_TO_SPEECH)

    async def add_speech(self, reply: Content, room: Room) -> tuple[Content, str]:
        """Return a reply with its spoken form, or as it is and why it is only written.

        The reason is empty where there is nothing to speak. No failure of a model costs the reply.
        """
        if reply.attachments:
            return reply, ""
        # The end of the line shows that nothing follows: what could be the start of a secret is none.
        text = to_spoken_text(self._filter_text(f"{reply.text}\n", room.id))
        if not text:
            return reply, ""
        if len(text) > self._max_length:
            return reply, f"the reply was not spoken: it has more than {self._max_length} characters (VOICE_MAX_LENGTH)"
        try:
            result = await self._models.speak(SpeechRequest(text, content_type=self._voice_type(room)))
        except ModelError as error:
            logger.warning("a reply for room %s is only written: %s", room.id, error)
            return reply, f"the reply was not spoken: {error}"
        if len(result.audio) > MAX_AUDIO_BYTES:
            logger.warning("a reply for room %s is only written: %s returned too much sound", room.id, result.model)
            return reply, f"the reply was not spoken: its recording is larger than {MAX_AUDIO_BYTES // 2**20} MiB"
        content_type = "audio/ogg" if result.audio.startswith(b"OggS") else result.content_type
        name = f"voice{SUFFIXES.get(content_type, '')}"
        speech = Attachment(SPEECH_ID, MediaKind.AUDIO, content_type=content_type, name=name, data=result.audio)
        return replace(reply, attachments=(speech,)), ""

    def _voice_type(self, room: Room) -> str:
        adapter = self._find_adapter(room.platform)
        return adapter.voice_type if adapter is not None else ""


def _is_transcribed(content: Content) -> bool:
    """Return whether a message was spoken and understood."""
    return content.is_voice and any(attachment.text.strip() for attachment in content.attachments)


def to_spoken_text(text: str) -> str:
    """Return the words of a Markdown text: without code, addresses and marks, which say nothing when read aloud."""
    text = URL.sub("", LINK.sub(r"\1", CODE_BLOCK.sub("", text)))
    return EMPHASIS.sub("", LINE_MARK.sub("", text)).strip()
