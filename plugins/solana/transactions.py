"""Keys, addresses and transactions of Solana, by the library solders; imported when first needed."""

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final

from solders.compute_budget import set_compute_unit_limit, set_compute_unit_price
from solders.hash import Hash
from solders.instruction import AccountMeta, Instruction
from solders.keypair import Keypair
from solders.message import Message
from solders.pubkey import Pubkey
from solders.system_program import ID, TransferParams, transfer
from solders.token import ID as TOKEN_ID
from solders.token.associated import get_associated_token_address
from solders.transaction import Transaction

from bot.platform import NATIVE, LazyModule, Order

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
else:
    serialization = LazyModule("cryptography.hazmat.primitives.serialization", "cryptography")
    ed25519 = LazyModule("cryptography.hazmat.primitives.asymmetric.ed25519", "cryptography")

SYSTEM_PROGRAM: Final = str(ID)  # wallets belong to it
TOKEN_PROGRAM: Final = str(TOKEN_ID)  # the original one; mints of Token-2022 belong to another
COMPUTE_UNITS: Final = 100_000  # with a new account for a token it takes about half of them
ASSOCIATED_PROGRAM: Final = Pubkey.from_string("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL")
MEMO_PROGRAM: Final = Pubkey.from_string("MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr")
CREATE_IF_MISSING, TRANSFER_CHECKED = b"\x01", b"\x0c"


def read_key(text: str) -> Keypair:
    """Return a key in base58, as wallets export it. Raises ValueError."""
    return Keypair.from_base58_string(text.strip())


def unlock_key(pem: bytes, password: str) -> Keypair:
    """Return the Ed25519 key of an encrypted PEM file. Raises ValueError and TypeError."""
    key = serialization.load_pem_private_key(pem, password.encode())
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise TypeError("it is not an Ed25519 key")
    return Keypair.from_seed(key.private_bytes_raw())


def read_address(text: str) -> str:
    """Return an address, which has no checksum. Raises ValueError for what is none."""
    return str(Pubkey.from_string(text))


def find_token_account(owner: str, mint: str) -> str:
    """Return the address of an owner's associated account for a token."""
    return str(get_associated_token_address(Pubkey.from_string(owner), Pubkey.from_string(mint)))


def build_message(sender: str, order: Order, blockhash: str, unit_price: int, memo: str, *, creates: bool) -> bytes:
    """Return what is signed, with `unit_price` in millionths of a lamport. The memo makes equal orders differ.

    With `creates` the sender pays for the recipient's account for the token, unless it is there.
    """
    payer, recipient = Pubkey.from_string(sender), Pubkey.from_string(order.recipient)
    instructions = [
        set_compute_unit_limit(COMPUTE_UNITS),
        set_compute_unit_price(unit_price),
        Instruction(MEMO_PROGRAM, memo.encode(), []),
    ]
    if order.asset == NATIVE:
        instructions.append(transfer(TransferParams(from_pubkey=payer, to_pubkey=recipient, lamports=order.amount)))
    else:
        instructions += _move_token(payer, recipient, order, creates=creates)
    return bytes(Message.new_with_blockhash(instructions, payer, Hash.from_string(blockhash)))


def _move_token(payer: Pubkey, recipient: Pubkey, order: Order, *, creates: bool) -> list[Instruction]:
    mint = Pubkey.from_string(order.asset)
    source, target = (get_associated_token_address(owner, mint) for owner in (payer, recipient))
    sender, read, write = AccountMeta(payer, True, True), (False, False), (False, True)
    accounts = [
        sender,
        AccountMeta(target, *write),
        *(AccountMeta(key, *read) for key in (recipient, mint, ID, TOKEN_ID)),
    ]
    created = [Instruction(ASSOCIATED_PROGRAM, CREATE_IF_MISSING, accounts)] if creates else []
    data = TRANSFER_CHECKED + order.amount.to_bytes(8, "little") + bytes([order.decimals])
    moved = [AccountMeta(source, *write), AccountMeta(mint, *read), AccountMeta(target, *write), sender]
    return [*created, Instruction(TOKEN_ID, data, moved)]


def encode_unsigned(message: bytes) -> str:
    """Return a transaction without signatures in base64, which can only be simulated."""
    return b64encode(bytes(Transaction.new_unsigned(Message.from_bytes(message)))).decode()


def sign(key: Keypair, message: str) -> tuple[str, str]:
    """Return the signature of a message in base64, and the signed transaction in base64."""
    content = b64decode(message)
    signature = key.sign_message(content)
    return str(signature), b64encode(bytes(Transaction.populate(Message.from_bytes(content), [signature]))).decode()
