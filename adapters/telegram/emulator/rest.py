"""The methods of the Bot API that bots call, with the refusals that Telegram has for them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from adapters.telegram.emulator.faults import refusal
from adapters.telegram.emulator.people import member_of
from adapters.telegram.emulator.recorder import Ledger, Shown
from adapters.telegram.emulator.state import BotRecord, Town

FILE_METHODS = {
    "sendPhoto": "photo",
    "sendDocument": "document",
    "sendVoice": "voice",
    "sendAudio": "audio",
    "sendVideo": "video",
}
LONGEST_TEXT, LONGEST_CAPTION = 4096, 1024
Parameters = Mapping[str, Any]
Files = Mapping[str, tuple[str, bytes]]


class Refused(Exception):
    """Telegram does not do it; `body` is what it answers."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.body = refusal(code, description, **parameters)


class Methods:
    """Carries out what a bot asks for."""

    def __init__(self, town: Town, ledger: Ledger) -> None:
        self._town, self._ledger = town, ledger
        self._known: dict[str, Callable[[BotRecord, Parameters, Files], Awaitable[Any]]] = {
            "getMe": self._get_me,
            "getUpdates": self._get_updates,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "getWebhookInfo": self._webhook_info,
            "sendMessage": self._send_message,
            "sendChatAction": self._nothing,
            "editMessageText": self._edit,
            "editMessageCaption": self._edit,
            "editMessageMedia": self._edit,
            "deleteMessage": self._delete,
            "answerCallbackQuery": self._answer,
            "setMyCommands": self._set_commands,
            "getMyCommands": self._get_commands,
            "getChatAdministrators": self._administrators,
            "getFile": self._get_file,
        }

    async def call(self, bot: BotRecord, method: str, parameters: Parameters, files: Files) -> Any:
        """Carry out one call; raises Refused."""
        if method in FILE_METHODS:
            return await self._send_file(bot, method, parameters, files)
        if method not in self._known:
            raise Refused(404, "Not Found: method not found")
        return await self._known[method](bot, parameters, files)

    async def _get_me(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        return bot.user

    async def _get_updates(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        """Give what waits, or wait for it; a newer poll ends an older one."""
        if bot.webhook:
            raise Refused(
                409, "Conflict: can't use getUpdates method while webhook is active; delete the webhook first"
            )
        if bot.poll is not None:
            bot.poll.set()
        bot.poll = taken_over = asyncio.Event()
        if (offset := int(parameters.get("offset", 0))) != 0:
            bot.confirm(offset)
        if "allowed_updates" in parameters:
            bot.allowed = tuple(parameters["allowed_updates"])
        try:
            await self._wait(bot, taken_over, float(parameters.get("timeout", 0)))
        finally:
            if bot.poll is taken_over:
                bot.poll = None
        found = bot.pending(self._town.clock())[: int(parameters.get("limit", 100))]
        self._ledger.note("updates given" if found else "updates asked for")
        return found

    async def _wait(self, bot: BotRecord, taken_over: asyncio.Event, seconds: float) -> None:
        bot.arrived.clear()
        if bot.pending(self._town.clock()) or not seconds:
            return
        self._ledger.note("waiting")
        waits = [asyncio.ensure_future(one.wait()) for one in (bot.arrived, taken_over)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        if taken_over.is_set():
            raise Refused(
                409,
                "Conflict: terminated by other getUpdates request; make sure that only one bot instance "
                "is running",
            )

    async def _set_webhook(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        bot.webhook, bot.secret = str(parameters.get("url", "")), str(parameters.get("secret_token", ""))
        bot.allowed = tuple(parameters.get("allowed_updates", ()))
        bot.arrived.set()
        return True

    async def _delete_webhook(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        bot.webhook = ""
        return True

    async def _webhook_info(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        waiting = len(bot.pending(self._town.clock()))
        return {"url": bot.webhook, "has_custom_certificate": False, "pending_update_count": waiting}

    async def _nothing(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        self._chat(bot, parameters)
        return True

    async def _send_message(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        text = str(parameters.get("text", ""))
        if not text.strip():
            raise Refused(400, "Bad Request: message text is empty")
        self._check_text(text, parameters.get("entities", ()), LONGEST_TEXT, "message")
        message = self._message(bot, parameters)
        message["text"] = text
        if parameters.get("entities"):
            message["entities"] = parameters["entities"]
        return self._show(message, text, {})

    async def _send_file(self, bot: BotRecord, method: str, parameters: Parameters, files: Files) -> Any:
        kind = FILE_METHODS[method]
        caption = str(parameters.get("caption", ""))
        self._check_text(caption, parameters.get("caption_entities", ()), LONGEST_CAPTION, "message caption")
        message = self._message(bot, parameters)
        number = self._town.number()
        found: dict[str, Any] = {"file_id": f"sent-{number}", "file_unique_id": f"sent-unique-{number}"}
        if kind == "photo":
            message["photo"] = [{**found, "width": 640, "height": 480}]
        else:
            size = {"width": 640, "height": 480} if kind == "video" else {}
            message[kind] = {**found, **size, **({} if kind == "document" else {"duration": 1})}
        if caption:
            message["caption"] = caption
        return self._show(message, caption, dict(files.values()))

    async def _edit(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        chat = self._chat(bot, parameters)
        shown = self._ledger.find(chat["id"], int(parameters["message_id"]))
        if shown is None or shown.is_gone:
            raise Refused(400, "Bad Request: message to edit not found")
        media = parameters.get("media", {})
        text = str(parameters.get("text", parameters.get("caption", media.get("caption", ""))))
        if "text" in parameters and "text" not in shown.message:
            raise Refused(400, "Bad Request: there is no text in the message to edit")
        entities = parameters.get("entities", parameters.get("caption_entities", ()))
        self._check_text(text, entities, LONGEST_TEXT, "message")
        markup = parameters.get("reply_markup", {})
        if text == shown.text and markup == shown.message.get("reply_markup", {}) and not media:
            raise Refused(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup are "
                "exactly the same as a current content and reply markup of the message",
            )
        shown.texts.append(text)
        shown.message |= {"text" if "text" in parameters else "caption": text}
        shown.message |= {"edit_date": self._town.seconds()}
        shown.message.pop("reply_markup", None)
        if markup:
            shown.message["reply_markup"] = markup
        self._ledger.note("edited")
        return shown.message

    async def _delete(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        chat = self._chat(bot, parameters)
        shown = self._ledger.find(chat["id"], int(parameters["message_id"]))
        if shown is None or shown.is_gone:
            raise Refused(400, "Bad Request: message to delete not found")
        shown.is_gone = True
        self._ledger.note("deleted")
        return True

    async def _answer(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        self._ledger.alerts[str(parameters["callback_query_id"])] = str(parameters.get("text", ""))
        return True

    async def _set_commands(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        bot.commands[parameters.get("scope", {}).get("type", "default")] = list(parameters["commands"])
        return True

    async def _get_commands(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        return bot.commands.get(parameters.get("scope", {}).get("type", "default"), [])

    async def _administrators(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        chat = self._chat(bot, parameters)
        people = {**self._town.users, **{one.id: one.user for one in self._town.bots.values()}}
        statuses = self._town.members[chat["id"]].items()
        return [
            member_of(people[user], status)
            for user, status in statuses
            if status in ("creator", "administrator")
        ]

    async def _get_file(self, bot: BotRecord, parameters: Parameters, files: Files) -> Any:
        file_id = str(parameters.get("file_id", ""))
        if file_id not in self._town.files:
            raise Refused(400, "Bad Request: invalid file_id")
        path, content = self._town.files[file_id]
        return {
            "file_id": file_id,
            "file_unique_id": f"unique-{file_id}",
            "file_size": len(content),
            "file_path": path,
        }

    def _chat(self, bot: BotRecord, parameters: Parameters) -> dict[str, Any]:
        number = int(parameters.get("chat_id", 0))
        if number in self._town.moved:
            raise Refused(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=self._town.moved[number],
            )
        if number not in self._town.chats:
            raise Refused(400, "Bad Request: chat not found")
        status = self._town.members[number].get(bot.id, "left")
        if status in ("left", "kicked"):
            kind = self._town.chats[number]["type"]
            is_private = kind == "private"
            raise Refused(
                403,
                "Forbidden: bot was blocked by the user"
                if is_private
                else f"Forbidden: bot was kicked from the {kind} chat",
            )
        return self._town.chats[number]

    def _check_text(self, text: str, entities: Any, longest: int, what: str) -> None:
        size = len(text.encode("utf-16-le")) // 2
        if size > longest:
            raise Refused(400, f"Bad Request: {what} is too long")
        for one in entities:
            if one["offset"] < 0 or one["length"] < 1 or one["offset"] + one["length"] > size:
                raise Refused(400, "Bad Request: can't parse entities: wrong offset or length")

    def _message(self, bot: BotRecord, parameters: Parameters) -> dict[str, Any]:
        chat = self._chat(bot, parameters)
        message: dict[str, Any] = {
            "message_id": self._town.next_message(chat["id"]),
            "from": bot.user,
            "date": self._town.seconds(),
            "chat": chat,
        }
        if thread := parameters.get("message_thread_id"):
            message |= {"message_thread_id": int(thread), "is_topic_message": True}
        if reply := parameters.get("reply_parameters"):
            replied = self._town.messages.get((chat["id"], int(reply["message_id"])))
            if replied is None and not reply.get("allow_sending_without_reply"):
                raise Refused(400, "Bad Request: message to be replied not found")
            if replied is not None:
                message["reply_to_message"] = {k: v for k, v in replied.items() if k != "reply_to_message"}
        if parameters.get("reply_markup"):
            message["reply_markup"] = parameters["reply_markup"]
        return message

    def _show(self, message: dict[str, Any], text: str, files: dict[str, bytes]) -> Any:
        self._town.keep(message)
        thread = message.get("message_thread_id")
        shown = Shown(message["chat"]["id"], message["message_id"], thread, message, [text], files)
        self._ledger.shown.append(shown)
        self._ledger.note("shown")
        return message


def read_value(text: str) -> Any:
    """Read a form's value: what is JSON of an object, a list, a number or a truth value is that."""
    if text[:1] in "[{" or text in ("true", "false") or text.lstrip("-").isdecimal():
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
