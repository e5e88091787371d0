"""Balances and transfers on a local Solana, with the real library and the runtime of its validators."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot import ChannelType, Content, Role
from bot.models import Purpose
from bot.platform import format_units
from bot.plugin_system.loading import find_plugin, import_library
from bot.testing import AgentHarness, ScriptedModel, check_plugin_contract, model_answer, running_agent
from plugins.solana.network import SolanaAccount
from tests.plugins.solana.chain import (
    FEE,
    FIRST_BLOCK,
    FRIEND,
    KEY,
    RENT,
    SENDER,
    SOL,
    STRANGER,
    TOKEN,
    TOKEN_2022,
    Chain,
    associated,
    library,
    run_chain,
)
from tests.plugins.transfers import ask, confirm, hostile_messages, model_of, obedient_model, play

ORDER = f"Send 0.5 to {FRIEND}"
TOKEN_ORDER = f"Send 12 usdx to {FRIEND}"
HALF = SOL // 2


@pytest.fixture
async def chain() -> AsyncIterator[Chain]:
    async with run_chain() as running_chain:
        yield running_chain


def order(to: str = FRIEND, amount: str = "0.5", token: str = "") -> ScriptedModel:
    """Return a model that orders one transfer, whatever it reads."""
    return model_of("SOLANA_TRANSFER", to=to, amount=amount, token=token)


@asynccontextmanager
async def running(
    chain: Chain, folder: Path, model: ScriptedModel | None = None, **settings: str
) -> AsyncIterator[AgentHarness]:
    given = {
        "BOT_DATA_DIR": str(folder),
        "SOLANA_RPC_URL": chain.url,
        "SOLANA_NETWORK": FIRST_BLOCK,
        "SOLANA_PRIVATE_KEY": str(KEY),
        "SOLANA_OPERATORS": "test:Alice",
        "SOLANA_ALLOWED": FRIEND,
        "SOLANA_DAILY_LIMIT": f"native:1,{TOKEN}:100",
        "SOLANA_TOKENS": f"USDX:{TOKEN}",
        **settings,
    }
    plugin = find_plugin("solana")  # as the loader does: only then is it trusted to report itself
    assert plugin is not None
    async with running_agent(plugin, model=model or order(), settings=given) as harness:
        harness.agent.services[SolanaAccount].poll_seconds = 0.02
        yield harness


@pytest.mark.long
async def test_a_transfer_shows_network_address_amount_and_fee_and_is_made_once_its_code_is_written(
    chain: Chain, tmp_path: Path
) -> None:
    async with running(chain, tmp_path) as harness:
        code = await ask(harness, ORDER)
        [question] = harness.texts
        fee = f"a fee of at most {format_units(FEE, 9)} SOL"
        assert all(part in question for part in (FRIEND, "0.5 SOL", f"Solana {FIRST_BLOCK}", fee, code))
        assert chain.landed == []
        report = await confirm(harness, code)
    [transaction] = chain.landed
    assert (chain.balance(FRIEND), chain.balance(SENDER)) == (HALF, 10 * SOL - HALF - FEE)
    assert report.startswith(f"Transferred 0.5 SOL to {FRIEND}")
    assert str(transaction.signatures[0]) in report


@pytest.mark.matrix(5)
@pytest.mark.parametrize(
    ("settings", "role", "author", "arguments"),
    [
        ({}, Role.ADMIN, "Alice", {}),
        ({}, Role.OWNER, "Mallory", {}),
        ({"SOLANA_OPERATORS": ""}, Role.OWNER, "Alice", {}),
        ({"SOLANA_ALLOWED": STRANGER}, Role.OWNER, "Alice", {}),
        ({"SOLANA_DAILY_LIMIT": "native:0.4"}, Role.OWNER, "Alice", {}),
        ({"SOLANA_DAILY_LIMIT": f"{TOKEN}:100"}, Role.OWNER, "Alice", {}),
        ({"SOLANA_PRIVATE_KEY": ""}, Role.OWNER, "Alice", {}),
        ({"SOLANA_NETWORK": "mainnet"}, Role.OWNER, "Alice", {}),
        ({}, Role.OWNER, "Alice", {"amount": "0.0000000001"}),
        ({}, Role.OWNER, "Alice", {"amount": "0.0000001"}),  # too little for a wallet that is new
        ({}, Role.OWNER, "Alice", {"to": FRIEND[:-2]}),
        ({}, Role.OWNER, "Alice", {"token": STRANGER}),
    ],
)
async def test_an_order_outside_of_the_rules_is_refused_without_a_question(
    chain: Chain, tmp_path: Path, settings: dict[str, str], role: Role, author: str, arguments: dict[str, str]
) -> None:
    text = " ".join(("Send", *({"amount": "0.5", "to": FRIEND} | arguments).values()))
    async with running(chain, tmp_path, order(**arguments), **settings) as harness:
        assert await ask(harness, text, role, author) == ""
    assert chain.landed == []


@pytest.mark.long
async def test_equal_transfers_with_the_same_block_hash_are_each_made(chain: Chain, tmp_path: Path) -> None:
    async with running(chain, tmp_path) as harness:
        for _ in range(2):
            assert (await confirm(harness, await ask(harness, ORDER))).startswith("Transferred")
        assert "0 of it is left" in await confirm(harness, await ask(harness, ORDER))
    assert len({transaction.message.recent_blockhash for transaction in chain.landed}) == 1
    assert chain.balance(FRIEND) == 2 * HALF


@pytest.mark.long
@pytest.mark.parametrize("owners", [[], [FRIEND]])
async def test_a_token_is_transferred_and_an_account_that_the_recipient_lacks_is_paid_for_as_the_question_says(
    chain: Chain, tmp_path: Path, owners: list[str]
) -> None:
    chain.add_token(*owners)
    async with running(chain, tmp_path, order(amount="12", token="usdx")) as harness:
        code = await ask(harness, TOKEN_ORDER)
        cost = FEE + (0 if owners else RENT)
        assert f"12 USDX (token {TOKEN})" in harness.texts[0]
        assert f"a fee of at most {format_units(cost, 9)} SOL" in harness.texts[0]
        assert (format_units(RENT, 9) in harness.texts[0]) == (not owners)
        assert (await confirm(harness, code)).startswith("Transferred 12 USDX")
    assert chain.token_balance(FRIEND) == 12 * 10**6
    assert chain.balance(SENDER) == 10 * SOL - cost


@pytest.mark.long
async def test_a_fee_above_the_confirmed_fee_is_refused(chain: Chain, tmp_path: Path) -> None:
    chain.add_token(FRIEND)
    async with running(chain, tmp_path, order(amount="12", token="usdx")) as harness:
        code = await ask(harness, TOKEN_ORDER)
        chain.remove_token_account(FRIEND)  # so that the sender would pay for another one
        assert "the fee has risen" in await confirm(harness, code)
    assert chain.landed == []


async def test_a_token_whose_program_may_withhold_a_part_is_only_read(chain: Chain, tmp_path: Path) -> None:
    chain.add_token(FRIEND, program=TOKEN_2022)
    async with running(chain, tmp_path, order(amount="12", token=TOKEN)) as harness:
        assert await ask(harness, f"Send 12 of {TOKEN} to {FRIEND}") == ""
        assert "not those of Token-2022" in harness.model.requests_for(Purpose.SUMMARY)[0].prompt
        account = harness.agent.services[SolanaAccount]
        assert await account.balance(SENDER, TOKEN) == 1000 * 10**6


async def test_what_is_not_a_wallet_receives_nothing(chain: Chain, tmp_path: Path) -> None:
    chain.add_token(FRIEND)
    account = str(associated.get_associated_token_address(*map(library.Pubkey.from_string, (FRIEND, TOKEN))))
    async with running(chain, tmp_path, order(to=account), SOLANA_ALLOWED=account) as harness:
        assert await ask(harness, f"Send 0.5 to {account}") == ""
    assert chain.landed == []


@pytest.mark.long
async def test_a_dry_run_sends_nothing(chain: Chain, tmp_path: Path) -> None:
    async with running(chain, tmp_path, SOLANA_DRY_RUN="true") as harness:
        code = await ask(harness, ORDER)
        assert harness.texts[0].startswith("Dry run")
        assert "nothing was sent" in await confirm(harness, code)
    assert chain.counts["simulateTransaction"] == 2
    assert chain.counts["sendTransaction"] == 0


@pytest.mark.long
async def test_a_transfer_that_is_not_final_is_not_called_done_delays_the_next_transfer_and_is_reported_later(
    chain: Chain, tmp_path: Path
) -> None:
    chain.commitment = "confirmed"
    async with running(chain, tmp_path) as harness:
        assert "under way" in await confirm(harness, await ask(harness, ORDER), is_final=False)
        await chain.wait_for_calls("getSignatureStatuses", 3)
        assert "try again after" in await confirm(harness, await ask(harness, ORDER))
        count = len(harness.texts)
        chain.commitment = "finalized"
        assert (await harness.adapter.wait_until_sent(count + 1))[-1].startswith("Transferred 0.5")
    assert len(chain.landed) == 1


@asynccontextmanager
async def unconfirmed(chain: Chain, folder: Path, **settings: str) -> AsyncIterator[AgentHarness]:
    """Run a bot that has sent a transfer to a network which makes no blocks."""
    chain.is_waiting = True
    async with running(chain, folder, **settings) as harness:
        assert "under way" in await confirm(harness, await ask(harness, ORDER), is_final=False)
        if not chain.counts["sendTransaction"]:
            await chain.wait_for_calls("sendTransaction")
        yield harness


async def next_text(harness: AgentHarness) -> str:
    """Return what is reported next."""
    return (await harness.adapter.wait_until_sent(len(harness.texts) + 1))[-1]


@pytest.mark.long
async def test_a_transfer_that_the_network_has_forgotten_is_sent_again_with_the_same_bytes(
    chain: Chain, tmp_path: Path
) -> None:
    async with unconfirmed(chain, tmp_path) as harness:
        [forgotten] = chain.waiting
        chain.waiting.clear()
        await chain.wait_for_calls("sendTransaction", 2)
        assert list(chain.waiting) == [forgotten]
        chain.land()
        assert forgotten in await next_text(harness)
    assert [str(item.signatures[0]) for item in chain.landed] == [forgotten]


@pytest.mark.long
async def test_a_transfer_whose_sending_was_not_answered_is_made_once(chain: Chain, tmp_path: Path) -> None:
    chain.is_deaf = True
    async with running(chain, tmp_path) as harness:
        assert (await confirm(harness, await ask(harness, ORDER))).startswith("Transferred")
    assert chain.balance(FRIEND) == HALF
    assert len(chain.landed) == 1


@pytest.mark.long
async def test_a_transfer_whose_block_hash_has_expired_has_failed_and_cannot_be_made_any_more(
    chain: Chain, tmp_path: Path
) -> None:
    async with unconfirmed(chain, tmp_path) as harness:
        [late] = chain.waiting.values()
        chain.expire()
        assert "was not made: the network did not take it in time" in await next_text(harness)
        assert "BlockhashNotFound" in str(chain.execute(late))
        chain.is_waiting = False
        assert (await confirm(harness, await ask(harness, ORDER))).startswith("Transferred")
    assert chain.balance(FRIEND) == HALF


@pytest.mark.long
@pytest.mark.parametrize("case", ["in a block", "status of a node that is behind", "blocks removed by the node"])
async def test_an_expired_transfer_is_not_called_failed_while_it_may_be_in_a_block(
    chain: Chain, tmp_path: Path, case: str
) -> None:
    async with unconfirmed(chain, tmp_path) as harness:
        count = len(harness.texts)
        chain.status_lag = 0 if case == "in a block" else 10**6
        if case == "blocks removed by the node":
            chain.status_lag, chain.first_available = -1, chain.slot + 1
        chain.land()
        chain.expire()
        if case != "in a block":
            await chain.wait_for_calls("getSignatureStatuses", 3)
            assert len(harness.texts) == count
            chain.status_lag = 0  # the node has caught up, or is another one
        assert (await harness.adapter.wait_until_sent(count + 1))[-1].startswith("Transferred")
    assert len(chain.landed) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("is_taken", "report"), [(True, "Transferred 0.5 SOL"), (False, "The transfer was not made: the network did not")]
)
async def test_what_became_of_a_transfer_while_the_bot_was_off_is_reported_after_its_start(
    chain: Chain, tmp_path: Path, is_taken: bool, report: str
) -> None:
    settings = {"DATABASE_URL": f"sqlite:///{tmp_path / 'greenroom.db'}"}
    async with unconfirmed(chain, tmp_path, **settings):
        pass
    if is_taken:
        chain.land()
    chain.expire()
    async with running(chain, tmp_path, **settings) as harness:
        assert (await harness.adapter.wait_until_sent(1))[0].startswith(report)
    assert chain.balance(FRIEND) == (HALF if is_taken else 0)


@pytest.mark.long
async def test_a_transfer_that_the_network_rejects_is_reported_as_rejected(chain: Chain, tmp_path: Path) -> None:
    async with unconfirmed(chain, tmp_path) as harness:
        chain.svm.set_account(KEY.pubkey(), library.Account(FEE, b"", library.Pubkey.default()))  # spent elsewhere
        chain.land()
        assert (await next_text(harness)).startswith("The network rejected the transfer")
    assert chain.balance(FRIEND) == 0


async def test_a_node_without_history_makes_no_transfer(chain: Chain, tmp_path: Path) -> None:
    chain.has_history = False
    async with running(chain, tmp_path) as harness:
        assert await ask(harness, ORDER) == ""


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("address", "token", "expected"),
    [
        (SENDER, "", f"{SENDER} has 10 SOL on Solana"),
        (SENDER, "USDX", f"{SENDER} has 1000 USDX (token {TOKEN}) on Solana"),
        (FRIEND, TOKEN, f"{FRIEND} has 0 USDX"),
        ("", "", "no account of its own here"),
        (SENDER, STRANGER, "the node refused it"),
    ],
)
async def test_balances_need_no_key(chain: Chain, tmp_path: Path, address: str, token: str, expected: str) -> None:
    chain.add_token()
    call = model_answer(actions=["SOLANA_BALANCE"], parameters={"address": address, "token": token})
    model = ScriptedModel([call, model_answer("So much.")])
    async with running(chain, tmp_path, model, SOLANA_PRIVATE_KEY="") as harness:
        await harness.send("How much is it?", author="Robin")
        [request] = harness.model.requests_for(Purpose.SUMMARY)
    assert expected in request.prompt


def write_key(path: Path, password: str) -> dict[str, str]:
    """Write the key as openssl would; return the settings that name the file."""
    serialization = import_library("cryptography.hazmat.primitives.serialization")
    ed25519 = import_library("cryptography.hazmat.primitives.asymmetric.ed25519")
    lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(KEY)[:32])
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))
    return {"SOLANA_PRIVATE_KEY": "", "SOLANA_KEYSTORE": str(path), "SOLANA_KEYSTORE_PASSWORD": "a long password"}


async def test_the_key_is_read_from_an_encrypted_file(chain: Chain, tmp_path: Path) -> None:
    settings = write_key(tmp_path / "key.pem", "a long password")
    async with running(chain, tmp_path, **settings) as harness:
        assert harness.agent.services[SolanaAccount].address == SENDER


def read_files(folder: Path) -> bytes:
    """Return what all files in a folder contain."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.long
async def test_after_a_transfer_the_key_is_in_no_prompt_log_or_file(
    chain: Chain, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    database = f"sqlite:///{tmp_path / 'greenroom.db'}"
    async with running(chain, tmp_path, DATABASE_URL=database) as harness:
        assert (await confirm(harness, await ask(harness, ORDER))).startswith("Transferred")
        prompts = "".join(request.system + request.prompt for request in harness.model.requests)
    stored = read_files(tmp_path)
    assert FRIEND in prompts
    assert FRIEND.encode() in stored
    for secret in (str(KEY), bytes(KEY)[:32].hex(), b64encode(bytes(KEY)[:32]).decode()[:40]):
        assert secret not in prompts + caplog.text
        assert secret.encode() not in stored
    assert bytes(KEY)[:32] not in stored


@pytest.mark.parametrize("password", ["another one", ""])
async def test_a_file_that_the_password_does_not_open_or_that_has_none_is_refused(
    chain: Chain, tmp_path: Path, password: str
) -> None:
    settings = write_key(tmp_path / "key.pem", password)
    with pytest.raises(LookupError, match="SOLANA_KEYSTORE: the key cannot be read"):
        async with running(chain, tmp_path, **settings):
            pass


async def test_a_mistyped_key_is_refused_without_being_shown(
    chain: Chain, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mistyped = str(KEY)[:-1] + "0"
    with pytest.raises(LookupError, match="SOLANA_PRIVATE_KEY: the key cannot be read"):
        async with running(chain, tmp_path, SOLANA_PRIVATE_KEY=mistyped):
            pass
    assert mistyped[:20] not in caplog.text


@pytest.mark.long
@pytest.mark.parametrize(("text", "kind"), hostile_messages(FRIEND))
async def test_a_model_that_obeys_injected_text_in_the_owners_turns_moves_nothing(
    chain: Chain, tmp_path: Path, text: Content, kind: ChannelType
) -> None:
    async with running(chain, tmp_path, obedient_model("SOLANA_TRANSFER", FRIEND)) as harness:
        await play(harness, FRIEND, text, kind)
    assert chain.landed == []


async def test_the_plugin_obeys_the_contract_of_all_plugins() -> None:
    plugin = find_plugin("solana")
    assert plugin is not None
    settings = {"SOLANA_RPC_URL": "http://127.0.0.1:9"}
    assert [result for result in await check_plugin_contract(plugin, settings) if result.problems] == []
