"""Accounts that are not connected as they should be, on the emulated platforms."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapters.discord.emulator import Fault as DiscordFault
from adapters.telegram.emulator import Fault, build_refusal, too_many_requests
from adapters.x.emulator import Fault as XFault
from bot.platform import ConnectionState, platform_name
from tests.browser.situations.running import FIRST_BOT, Bot, Group, Running, Situation, run_bots

ENDLESS = 10**9
MENTIONS = "GET /2/users/:id/mentions"
WEBHOOK = {
    "TELEGRAM_WEBHOOK_URL": "http://127.0.0.1:1/hook",
    "TELEGRAM_WEBHOOK_SECRET": "only-for-tests",
    "TELEGRAM_WEBHOOK_PORT": "0",
}
FAILED_WEBHOOK = {
    "url": f"http://127.0.0.1:1/hook/{FIRST_BOT + 7}",  # of the eighth bot below
    "has_custom_certificate": False,
    "pending_update_count": 3,
    "last_error_date": 4_000_000_000,
    "last_error_message": "Connection refused",
}


def fail(method: str, *details: Any, **fields: Any) -> Any:
    """Return what makes each call of a method of Telegram fail."""
    return lambda emulator: emulator.faults.append(Fault(method, *details, times=ENDLESS, **fields))


def fail_on_discord(match: str, *details: Any) -> Any:
    """Return what makes each request to Discord that matches fail."""
    return lambda emulator: emulator.faults.append(DiscordFault(match, *details, times=ENDLESS))


def fail_on_x(**details: Any) -> Any:
    """Return what makes reading the mentions of X fail."""
    return lambda emulator: emulator.add_faults(*[XFault(MENTIONS, **details) for _ in range(50)])


def refuse_gateway(code: int) -> Any:
    """Return what makes the gateway of Discord close each connection."""
    return lambda emulator: setattr(emulator.gateway, "refusal_code", code)


def revoke(emulator: Any) -> None:
    """Revoke the keys of an account on X."""
    emulator.is_revoked = True


def revoke_on_telegram(emulator: Any) -> None:
    """Revoke the token of a bot on Telegram after its start."""
    fail("getUpdates", 401, build_refusal(401, "No"))(emulator)
    fail("getMe", 401, build_refusal(401, "No"), skip_first=1)(emulator)


TELEGRAM: tuple[tuple[str, str, Any, dict[str, str], str], ...] = (
    ("the token is refused", "Ada", fail("getMe", 401, build_refusal(401, "Unauthorized")), {}, "rejects the token"),
    ("the token was revoked later", "Ben", revoke_on_telegram, {}, "rejects the token"),
    ("the platform resets connections", "Cleo", fail("getUpdates"), {}, "cannot be reached: check the network"),
    ("no answer in time", "Dora", fail("getMe", is_hanging=True), {}, "does not answer in time"),
    ("the platform has an error", "Emil", fail("getUpdates", 502, "oops"), {}, "reports an internal error"),
    (
        "rate limited",
        "Finn",
        lambda e: e.faults.append(too_many_requests("getUpdates", 300, times=9)),
        {},
        "limits the request rate",
    ),
    ("a second program", "Gus", fail("getUpdates", 409, build_refusal(409, "Conflict")), {}, "uses the same token"),
    (
        "the webhook fails",
        "Hal",
        fail("getWebhookInfo", 200, {"ok": True, "result": FAILED_WEBHOOK}),
        WEBHOOK,
        "cannot deliver to the webhook",
    ),
    (
        "the name is unknown",
        "Ida",
        lambda e: None,
        {"TELEGRAM_API_BASE_URL": "http://nowhere.invalid"},
        "cannot be resolved",
    ),
    ("nothing listens", "Jan", lambda e: None, {"TELEGRAM_API_BASE_URL": "http://127.0.0.1:9"}, "cannot be reached"),
)
DISCORD: tuple[tuple[str, str, Any, dict[str, str], str], ...] = (
    ("the token is refused", "Kaj", lambda e: None, {"DISCORD_API_TOKEN": "another"}, "rejects the token"),
    ("the platform is down", "Lea", fail_on_discord("GET .*/users/@me$", 503), {}, "reports an internal error"),
    ("no gateway", "Max", fail_on_discord(r"GET .*/gateway/bot$"), {}, "cannot be reached"),
    ("an intent is not granted", "Nia", refuse_gateway(4014), {}, "does not have the required permissions"),
)
X: tuple[tuple[str, str, Any, dict[str, str], str], ...] = (
    ("the keys are refused", "Oda", revoke, {}, "rejects the token"),
    ("mentions cannot be read", "Pia", fail_on_x(status=503), {}, "reports an internal error"),
)
ROWS = {"telegram": TELEGRAM, "discord": DISCORD, "x": X}
BOTS = [
    Bot(name, platform, prepare=prepare, settings=settings)
    for platform, rows in ROWS.items()
    for _, name, prepare, settings, _ in rows
]


@asynccontextmanager
async def open_accounts() -> AsyncIterator[Running]:
    """Run bots whose accounts fail, until each has said so."""
    async with run_bots(*BOTS) as running:

        async def has_failed() -> bool:
            links = running.server.runtime.handles[0].connections()
            states = {link.label: link.snapshot.state for link in links}
            return all(states[bot.name] in (ConnectionState.OFF, ConnectionState.DEGRADED) for bot in BOTS)

        await running.wait(has_failed)
        yield running


GROUP = Group(
    "accounts",
    open_accounts,
    [
        Situation(f"{platform_name(platform)}: {what}", cause, about=f"{name} on {platform_name(platform)}")
        for platform, rows in ROWS.items()
        for what, name, _, _, cause in rows
    ],
)
