"""The Bot API methods that bots call, with Telegram's errors, and fault injection."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from telegram.constants import ReactionEmoji

from adapters.telegram.emulator.people import TOPIC_COLOR, build_member
from adapters.telegram.emulator.state import ENTITY_FIELDS, BotRecord, PlatformState, Recorder, place_of, without_reply
from bot.testing import FaultResponse, TypingIndicators
from bot.testing.emulator import ShownMessage

REACTIONS = [emoji.value for emoji in ReactionEmoji]
FILE_METHODS = {f"send{kind.title()}": kind for kind in ("photo", "document", "voice", "audio", "video")}
TYPING_SECONDS = 5.0
CONFLICTING_POLLS = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
MAX_TEXT_LENGTH, MAX_CAPTION_LENGTH = 4096, 1024
Parameters = Mapping[str, Any]
Files = Mapping[str, tuple[str, bytes]]


@dataclass(slots=True)
class Fault(FaultResponse):
    """Fails calls of the method `match`, or all calls with `*`."""

    required_parameter: str = ""  # only calls with this parameter fail
    skip_first: int = 0  # number of matching calls that succeed first

    def applies_to(self, method: str, parameters: Mapping[str, Any]) -> bool:
        """Return whether a call fails; call it once per request."""
        is_match = self.match in ("*", method) and (
            not self.required_parameter or self.required_parameter in parameters
        )
        if is_match and self.skip_first:
            self.skip_first -= 1
            return False
        return self.times > 0 and is_match


def build_refusal(code: int, description: str, **parameters: Any) -> dict[str, Any]:
    """Return an error response in Telegram's format."""
    body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    return {**body, "parameters": parameters} if parameters else body


def too_many_requests(method: str, retry_after: Any, *, times: int = 1, skip_first: int = 0) -> Fault:
    """Return a fault with Telegram's rate-limit response."""
    text = f"Too Many Requests: retry after {retry_after}"
    return Fault(method, 429, build_refusal(429, text, retry_after=retry_after), times=times, skip_first=skip_first)


def refuse_markup(method: str = "sendMessage", *, times: int = 1) -> Fault:
    """Return a fault with Telegram's response to invalid entities."""
    text = "Bad Request: can't parse entities: unsupported start tag"
    return Fault(method, 400, build_refusal(400, text), times=times, required_parameter="entities")


INLINE_QUERY_TIME, MAX_RESULT_ID_BYTES, MAX_TOPIC_NAME = timedelta(seconds=30), 64, 128


class ApiError(Exception):
    """Telegram rejects the call; `body` is its response."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.body = build_refusal(code, description, **parameters)


class BotApi:
    """Executes the API calls of bots."""

    def __init__(self, state: PlatformState, recorder: Recorder) -> None:
        self._state, self._recorder = state, recorder
        self.typing = TypingIndicators(TYPING_SECONDS, lambda: recorder.record("typing"))
        self._methods: dict[str, Callable[[BotRecord, Parameters], Awaitable[Any]]] = {
            "getMe": self._get_me,
            "getUpdates": self._get_updates,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "getWebhookInfo": self._get_webhook_info,
            "sendMessage": self._send_message,
            "sendChatAction": self._send_chat_action,
            "editMessageText": self._edit_message,
            "editMessageCaption": self._edit_message,
            "editMessageMedia": self._edit_message,
            "deleteMessage": self._delete_message,
            "setMessageReaction": self._set_reaction,
            "createForumTopic": self._create_topic,
            "getChat": self._get_chat,
            "answerCallbackQuery": self._answer_callback_query,
            "answerGuestQuery": self._answer_guest_query,
            "answerInlineQuery": self._answer_inline_query,
            "setMyCommands": self._set_commands,
            "getMyCommands": self._get_commands,
            "getChatAdministrators": self._get_administrators,
            "getFile": self._get_file,
        }

    def methods(self) -> list[str]:
        """Return the names of the methods that can be called."""
        return [*self._methods, *FILE_METHODS]

    async def call(self, bot: BotRecord, method: str, parameters: Parameters, files: Files) -> Any:
        """Execute one call. Raises ApiError."""
        if method in FILE_METHODS:
            return await self._send_file(bot, method, parameters, files)
        if method not in self._methods:
            raise ApiError(404, "Not Found: method not found")
        return await self._methods[method](bot, parameters)

    async def _get_me(self, bot: BotRecord, parameters: Parameters) -> Any:
        return bot.user

    async def _get_updates(self, bot: BotRecord, parameters: Parameters) -> Any:
        """Return pending updates, or wait for one; a newer poll ends an older one."""
        if bot.webhook:
            raise ApiError(
                409, "Conflict: can't use getUpdates method while webhook is active; delete the webhook first"
            )
        bot.active_poll = None
        bot.update_arrived.set()  # wakes an older poll
        bot.update_arrived.clear()
        if (offset := int(parameters.get("offset", 0))) != 0:
            bot.confirm(offset)
        if "allowed_updates" in parameters:
            bot.allowed_updates = tuple(parameters["allowed_updates"])
        seconds = float(parameters.get("timeout", 0))
        if seconds and not bot.pending(self._state.clock()):
            poll = bot.active_poll = object()
            self._recorder.record("waiting")
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await bot.update_arrived.wait()
                if bot.active_poll is not poll:
                    raise ApiError(409, CONFLICTING_POLLS)
            finally:
                if bot.active_poll is poll:
                    bot.active_poll = None
        updates = bot.pending(self._state.clock())[: int(parameters.get("limit", 100))]
        self._recorder.record("updates given" if updates else "updates asked for")
        return updates

    async def _set_webhook(self, bot: BotRecord, parameters: Parameters) -> Any:
        bot.webhook, bot.secret = str(parameters.get("url", "")), str(parameters.get("secret_token", ""))
        bot.allowed_updates = tuple(parameters.get("allowed_updates", ()))
        bot.update_arrived.set()
        return True

    async def _delete_webhook(self, bot: BotRecord, parameters: Parameters) -> Any:
        bot.webhook = ""
        return True

    async def _get_webhook_info(self, bot: BotRecord, parameters: Parameters) -> Any:
        pending_count = len(bot.pending(self._state.clock()))
        return {"url": bot.webhook, "has_custom_certificate": False, "pending_update_count": pending_count}

    async def _send_chat_action(self, bot: BotRecord, parameters: Parameters) -> Any:
        chat, thread = self._find_chat(bot, parameters), parameters.get("message_thread_id")
        if chat["type"] == "channel" or chat.get("is_direct_messages"):
            raise ApiError(400, "Bad Request: chat actions are not supported in this chat")
        self.typing.start(f"{chat['id']}/{thread}" if thread else str(chat["id"]), bot.user["first_name"])
        return True

    async def _send_message(self, bot: BotRecord, parameters: Parameters) -> Any:
        text = str(parameters.get("text", ""))
        if not text.strip():
            raise ApiError(400, "Bad Request: message text is empty")
        self._check_text(text, parameters.get("entities", ()), MAX_TEXT_LENGTH, "message")
        message = self._build_message(bot, parameters)
        message |= {name: parameters[name] for name in ("text", "entities") if parameters.get(name)}
        return self._publish(message, text, {})

    async def _send_file(self, bot: BotRecord, method: str, parameters: Parameters, files: Files) -> Any:
        kind = FILE_METHODS[method]
        caption = str(parameters.get("caption", ""))
        self._check_text(caption, parameters.get("caption_entities", ()), MAX_CAPTION_LENGTH, "message caption")
        message = self._build_message(bot, parameters)
        file_number = self._state.new_number()
        file_fields: dict[str, Any] = {"file_id": f"sent-{file_number}", "file_unique_id": f"sent-unique-{file_number}"}
        if kind == "photo":
            message["photo"] = [{**file_fields, "width": 640, "height": 480}]
        else:
            size = {"width": 640, "height": 480} if kind == "video" else {}
            message[kind] = {**file_fields, **size, **({} if kind == "document" else {"duration": 1})}
        message |= {name: parameters[name] for name in ("caption", "caption_entities") if parameters.get(name)}
        return self._publish(message, caption, dict(files.values()))

    async def _edit_message(self, bot: BotRecord, parameters: Parameters) -> Any:
        if inline_message_id := parameters.get("inline_message_id"):
            shown = self._recorder.find(*self._state.inline_messages[inline_message_id])
            assert shown is not None, "an inline message is shown"
            shown.texts.append(str(parameters["text"]))
            shown.message["text"] = shown.text
            self._recorder.record("edited")
            return True
        chat = self._find_chat(bot, parameters)
        shown = self._recorder.find(chat["id"], int(parameters["message_id"]))
        if shown is None or shown.is_gone:
            raise ApiError(400, "Bad Request: message to edit not found")
        media = parameters.get("media", {})
        text = str(parameters.get("text", parameters.get("caption", media.get("caption", ""))))
        if "text" in parameters and "text" not in shown.message:
            raise ApiError(400, "Bad Request: there is no text in the message to edit")
        entities = parameters.get("entities", parameters.get("caption_entities", ()))
        self._check_text(text, entities, MAX_TEXT_LENGTH, "message")
        markup = parameters.get("reply_markup", {})
        if text == shown.text and markup == shown.message.get("reply_markup", {}) and not media:
            raise ApiError(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup are "
                "exactly the same as a current content and reply markup of the message",
            )
        shown.texts.append(text)
        name = "text" if "text" in parameters else "caption"
        shown.message |= {name: text, "edit_date": self._state.unix_time()}
        for field, value in ((ENTITY_FIELDS[name], entities), ("reply_markup", markup)):
            shown.message.pop(field, None)
            shown.message |= {field: value} if value else {}
        self._recorder.record("edited")
        return shown.message

    async def _delete_message(self, bot: BotRecord, parameters: Parameters) -> Any:
        chat = self._find_chat(bot, parameters)
        shown = self._recorder.find(chat["id"], int(parameters["message_id"]))
        if shown is None or shown.is_gone:
            raise ApiError(400, "Bad Request: message to delete not found")
        shown.is_gone = True
        self._recorder.record("deleted")
        return True

    async def _set_reaction(self, bot: BotRecord, parameters: Parameters) -> Any:
        chat, message_id = self._find_chat(bot, parameters), int(parameters["message_id"])
        if (chat["id"], message_id) not in self._state.messages:
            raise ApiError(400, "Bad Request: message to react not found")
        emojis = [item["emoji"] for item in parameters.get("reaction") or ()]
        if len(emojis) > 1 or not set(emojis) <= set(self._state.available_reactions.get(chat["id"], REACTIONS)):
            raise ApiError(400, "Bad Request: REACTION_INVALID")
        reactions = self._state.reactions.setdefault((chat["id"], message_id), {})
        reactions.pop(bot.id, None)
        reactions.update((bot.id, emoji) for emoji in emojis)
        self._recorder.record("reacted")
        return True

    async def _create_topic(self, bot: BotRecord, parameters: Parameters) -> Any:
        chat, name = self._find_chat(bot, parameters), str(parameters.get("name", "")).strip()
        if not chat.get("is_forum"):
            raise ApiError(400, "Bad Request: the chat is not a forum")
        if self._state.members[chat["id"]].get(bot.id) != "administrator":
            raise ApiError(400, "Bad Request: not enough rights to create a topic")
        if not 0 < len(name) <= MAX_TOPIC_NAME:
            raise ApiError(400, "Bad Request: TOPIC_NAME_INVALID")
        topic = self._state.new_message_id(chat["id"])
        color = int(parameters.get("icon_color", TOPIC_COLOR))
        message = {"message_id": topic, "from": bot.user, "date": self._state.unix_time(), "chat": chat}
        message |= {"message_thread_id": topic, "is_topic_message": True}
        message["forum_topic_created"] = {"name": name, "icon_color": color}
        self._state.topics[chat["id"], topic] = name
        self._state.deliver_message("message", self._state.store_message(message))
        self._recorder.record("opened")
        return {"message_thread_id": topic, "name": name, "icon_color": color}

    async def _get_chat(self, bot: BotRecord, parameters: Parameters) -> Any:
        chat = self._find_chat(bot, parameters)
        gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels")
        info = {
            **chat,
            "accent_color_id": 0,
            "max_reaction_count": 11,
            "accepted_gift_types": dict.fromkeys(gifts, False),
        }
        if (emojis := self._state.available_reactions.get(chat["id"])) is not None:
            info["available_reactions"] = [{"type": "emoji", "emoji": emoji} for emoji in emojis]
        return info

    async def _answer_callback_query(self, bot: BotRecord, parameters: Parameters) -> Any:
        self._recorder.alerts[str(parameters["callback_query_id"])] = str(parameters.get("text", ""))
        return True

    async def _answer_guest_query(self, bot: BotRecord, parameters: Parameters) -> Any:
        asked = self._state.guest_queries.pop(str(parameters["guest_query_id"]), None)
        if asked is None:
            raise ApiError(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        result, chat = parameters["result"], asked["chat"]
        content = result["input_message_content"]
        text = str(content["message_text"])
        self._check_text(text, content.get("entities", ()), MAX_TEXT_LENGTH, "message")
        message_id = self._state.new_message_id(chat["id"])
        message = {"message_id": message_id, "from": bot.user, "date": self._state.unix_time(), "chat": chat}
        message |= {"text": text, "guest_bot_caller_user": asked["from"]}
        self._publish(message, text, {})
        inline_message_id = f"inline-{self._state.new_number()}"
        self._state.inline_messages[inline_message_id] = (chat["id"], message_id)
        return {"inline_message_id": inline_message_id}

    async def _answer_inline_query(self, bot: BotRecord, parameters: Parameters) -> Any:
        query_id = str(parameters["inline_query_id"])
        asked_at = self._state.inline_queries.pop(query_id, None)
        if asked_at is None or self._state.clock() - asked_at > INLINE_QUERY_TIME:
            raise ApiError(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        for result in parameters["results"]:
            if not 0 < len(str(result["id"]).encode()) <= MAX_RESULT_ID_BYTES:
                raise ApiError(400, "Bad Request: RESULT_ID_INVALID")
            content = result["input_message_content"]
            self._check_text(content["message_text"], content.get("entities", ()), MAX_TEXT_LENGTH, "message")
        self._recorder.inline_answers[query_id] = parameters
        self._recorder.record("inline answered")
        return True

    async def _set_commands(self, bot: BotRecord, parameters: Parameters) -> Any:
        bot.commands[_menu_key(parameters)] = list(parameters["commands"])
        return True

    async def _get_commands(self, bot: BotRecord, parameters: Parameters) -> Any:
        return bot.commands.get(_menu_key(parameters), [])

    async def _get_administrators(self, bot: BotRecord, parameters: Parameters) -> Any:
        chat = self._find_chat(bot, parameters)
        people = {**self._state.users, **{record.id: record.user for record in self._state.bots.values()}}
        statuses = self._state.members[chat["id"]].items()
        return [
            build_member(people[user], status) for user, status in statuses if status in ("creator", "administrator")
        ]

    async def _get_file(self, bot: BotRecord, parameters: Parameters) -> Any:
        file_id = str(parameters.get("file_id", ""))
        if file_id not in self._state.files:
            raise ApiError(400, "Bad Request: invalid file_id")
        path, content = self._state.files[file_id]
        return {"file_id": file_id, "file_unique_id": f"unique-{file_id}", "file_size": len(content), "file_path": path}

    def _find_chat(self, bot: BotRecord, parameters: Parameters) -> dict[str, Any]:
        chat_id = int(parameters.get("chat_id", 0))
        if chat_id in self._state.migrated_chats:
            raise ApiError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=self._state.migrated_chats[chat_id],
            )
        if chat_id not in self._state.chats:
            raise ApiError(400, "Bad Request: chat not found")
        if self._state.members[chat_id].get(bot.id, "left") in ("left", "kicked"):
            kind = self._state.chats[chat_id]["type"]
            cause = "blocked by the user" if kind == "private" else f"kicked from the {kind} chat"
            raise ApiError(403, f"Forbidden: bot was {cause}")
        return self._state.chats[chat_id]

    def _check_text(self, text: str, entities: Any, max_length: int, label: str) -> None:
        size = len(text.encode("utf-16-le")) // 2
        if size > max_length:
            raise ApiError(400, f"Bad Request: {label} is too long")
        for entity in entities:
            if entity["offset"] < 0 or entity["length"] < 1 or entity["offset"] + entity["length"] > size:
                raise ApiError(400, "Bad Request: can't parse entities: wrong offset or length")

    def _build_message(self, bot: BotRecord, parameters: Parameters) -> dict[str, Any]:
        chat = self._find_chat(bot, parameters)
        message: dict[str, Any] = {
            "message_id": self._state.new_message_id(chat["id"]),
            "from": bot.user,
            "date": self._state.unix_time(),
            "chat": chat,
        }
        if chat.get("is_direct_messages"):
            if not (topic := parameters.get("direct_messages_topic_id")):
                raise ApiError(400, "Bad Request: direct messages topic must be specified")
            message["direct_messages_topic"] = {"topic_id": int(topic)}
        thread = self._find_topic(bot, chat["id"], parameters)
        if thread is not None:
            message |= {"message_thread_id": thread, "is_topic_message": True}
        if reply := parameters.get("reply_parameters"):
            replied = self._state.messages.get((chat["id"], int(reply["message_id"])))
            if replied is None and not reply.get("allow_sending_without_reply"):
                raise ApiError(400, "Bad Request: message to be replied not found")
            if replied is not None:
                message["reply_to_message"] = without_reply(replied)
        if parameters.get("reply_markup"):
            message["reply_markup"] = parameters["reply_markup"]
        return message

    def _find_topic(self, bot: BotRecord, chat_id: int, parameters: Parameters) -> int | None:
        """Return the topic of a message: the one that is named, or that of the message that it replies to."""
        thread = parameters.get("message_thread_id")
        replied = self._state.messages.get((chat_id, parameters.get("reply_parameters", {}).get("message_id", 0)), {})
        if not thread and replied.get("is_topic_message"):
            thread = replied["message_thread_id"]
        topic = int(thread) if thread else None
        if topic is not None and (chat_id, topic) in self._state.deleted_topics:
            raise ApiError(400, "Bad Request: message thread not found")
        is_administrator = self._state.members[chat_id].get(bot.id) == "administrator"
        if (chat_id, topic) in self._state.closed_topics and not is_administrator:
            raise ApiError(400, "Bad Request: TOPIC_CLOSED")
        return topic

    def _publish(self, message: dict[str, Any], text: str, files: dict[str, bytes]) -> Any:
        self._state.store_message(message)
        thread = message.get("message_thread_id")
        key = (message["chat"]["id"], message["message_id"])
        shown = ShownMessage(*key, message["from"]["id"], [text], message, files, thread)
        self._recorder.messages.append(shown)
        self.typing.stop(place_of(message), message["from"]["first_name"])
        self._recorder.record("shown")
        return message


def parse_value(text: str) -> Any:
    """Parse a form value: JSON objects, lists, integers and Booleans; anything else is text."""
    if text[:1] in "[{" or text in ("true", "false") or text.lstrip("-").isdecimal():
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _menu_key(parameters: Parameters) -> tuple[str, str]:
    """Return the scope and the language of a menu of commands."""
    return parameters.get("scope", {}).get("type", "default"), parameters.get("language_code") or ""
