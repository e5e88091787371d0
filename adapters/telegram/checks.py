"""What `bot doctor` looks at: the token, privacy mode, who else takes the updates."""

from telegram import User, WebhookInfo
from telegram.error import InvalidToken, TelegramError

from adapters.telegram.client import Account, Connector
from adapters.telegram.config import Limits, TelegramSettings, read_settings
from adapters.telegram.errors import TOKEN_REFUSED, UNREADABLE, said
from bot import Settings
from bot.platform import ReadCursor
from bot.store import Checkup

PRIVACY = (
    "privacy mode is on: in groups the bot sees only commands, replies to it and messages that name it; "
    "to have it hear everything send /setprivacy to BotFather, choose Disable, then add it to the group again"
)


async def check_account(
    settings: Settings, read_cursor: ReadCursor, connector: Connector | None = None
) -> Checkup:
    """Look at the bot behind a character's settings; nobody on Telegram notices."""
    loaded = read_settings(settings)
    if loaded.telegram_bot_token is None:
        return Checkup("Telegram", is_there=False, problems=("TELEGRAM_BOT_TOKEN is not set",))
    place = f"bot {loaded.account} at {loaded.telegram_api_base_url}"
    account = Account(loaded, Limits(), connector)
    await account.open()
    try:
        return await _looked_at(account, loaded, place)
    except InvalidToken:
        return Checkup(place, is_there=False, problems=(TOKEN_REFUSED,))
    except TelegramError as error:
        problem = f"{said(error)}: look at the network and at TELEGRAM_API_BASE_URL, then try again"
        return Checkup(place, is_there=False, problems=(problem,))
    except UNREADABLE:
        problem = "what answers there is not Telegram: look at TELEGRAM_API_BASE_URL"
        return Checkup(place, is_there=False, problems=(problem,))
    finally:
        await account.close_sessions()


async def _looked_at(account: Account, settings: TelegramSettings, place: str) -> Checkup:
    user = await account.get_me()
    hook = await account.get_webhook_info()
    facts: dict[str, str | int] = {
        "bot": f"@{user.username}",
        "link": f"https://t.me/{user.username}",
        "groups": "hears everything" if user.can_read_all_group_messages else PRIVACY,
        "updates": f"by webhook, at {hook.url}" if hook.url else "asked for",
        "waiting": hook.pending_update_count,
    }
    return Checkup(place, facts=facts, problems=tuple(_problems(user, hook, settings)))


def _problems(user: User, hook: WebhookInfo, settings: TelegramSettings) -> list[str]:
    found = []
    ours = f"{settings.telegram_webhook_url}/{settings.account}" if settings.telegram_webhook_url else ""
    if not user.can_join_groups:
        found.append("the bot cannot be added to groups: /setjoingroups at BotFather changes that")
    if hook.url and hook.url != ours:
        found.append(
            f"another webhook takes the updates ({hook.url}): end the program that set it; "
            "this bot removes it at its start"
        )
    if hook.last_error_message:
        found.append(f"Telegram could not deliver to {hook.url}: {hook.last_error_message}")
    return found
