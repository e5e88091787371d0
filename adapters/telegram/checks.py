"""The checks of `bot doctor`: token, privacy mode, competing webhooks."""

from telegram import User, WebhookInfo
from telegram.error import InvalidToken, TelegramError

from adapters.telegram.client import BotClient, Connector
from adapters.telegram.config import Limits, TelegramSettings, read_settings
from adapters.telegram.errors import PARSE_ERRORS, TOKEN_REFUSED, error_text
from bot import Settings
from bot.platform import CursorReader
from bot.store import CheckReport

PRIVACY_MODE_HINT = (
    "privacy mode is on: in groups the bot receives only commands, replies to it and messages that name it; "
    "to receive everything send /setprivacy to BotFather, choose Disable, then add it to the group again"
)


async def check_account(
    settings: Settings, read_cursor: CursorReader, connector: Connector | None = None
) -> CheckReport:
    """Check the bot of a character's settings without sending any message."""
    loaded = read_settings(settings)
    if loaded.telegram_bot_token is None:
        return CheckReport("Telegram", exists=False, problems=("TELEGRAM_BOT_TOKEN is not set",))
    label = f"bot {loaded.account} at {loaded.telegram_api_base_url}"
    client = BotClient(loaded, Limits(), connector)
    await client.open()
    try:
        return await _inspect_account(client, loaded, label)
    except InvalidToken:
        return CheckReport(label, exists=False, problems=(TOKEN_REFUSED,))
    except TelegramError as error:
        problem = f"{error_text(error)}: check the network and TELEGRAM_API_BASE_URL, then try again"
        return CheckReport(label, exists=False, problems=(problem,))
    except PARSE_ERRORS:
        problem = "the server there is not Telegram: check TELEGRAM_API_BASE_URL"
        return CheckReport(label, exists=False, problems=(problem,))
    finally:
        await client.close_sessions()


async def _inspect_account(client: BotClient, settings: TelegramSettings, label: str) -> CheckReport:
    user = await client.get_me()
    webhook = await client.get_webhook_info()
    facts: dict[str, str | int] = {
        "bot": f"@{user.username}",
        "link": f"https://t.me/{user.username}",
        "groups": _describe_groups(user),
        "updates": f"by webhook, at {webhook.url}" if webhook.url else "by polling",
        "waiting": webhook.pending_update_count,
    }
    return CheckReport(label, facts=facts, problems=tuple(_find_problems(user, webhook, settings)))


def _describe_groups(user: User) -> str:
    if not user.can_join_groups:
        return "cannot be added to groups, as it is set at BotFather (/setjoingroups)"
    return "receives everything" if user.can_read_all_group_messages else PRIVACY_MODE_HINT


def _find_problems(user: User, webhook: WebhookInfo, settings: TelegramSettings) -> list[str]:
    problems = []
    own_webhook_url = f"{settings.telegram_webhook_url}/{settings.account}" if settings.telegram_webhook_url else ""
    if webhook.url and webhook.url != own_webhook_url:
        problems.append(
            f"another webhook receives the updates ({webhook.url}): stop the program that set it; "
            "this bot removes it when it starts"
        )
    if webhook.last_error_message:
        problems.append(f"Telegram could not deliver to {webhook.url}: {webhook.last_error_message}")
    return problems
