"""`SettingCipher`: encrypts secret settings of worlds with a key in the data folder (AES-256-GCM)."""

import base64
import binascii
import importlib
import logging
import os
import secrets
import stat
from pathlib import Path
from typing import Any, Self

from bot.errors import SettingError

logger = logging.getLogger(__name__)

KEY_FILE = "settings.key"
KEY_BYTES, NONCE_BYTES = 32, 12
PREFIX = "aes-256-gcm:"  # of every encrypted value
MAX_KEY_FILE_BYTES = 1024


class SettingCipher:
    """Encrypts texts, each for one purpose: a text that was encrypted for another is not decrypted."""

    def __init__(self, key: bytes) -> None:
        self._cipher: Any = _load_library()(key)

    @classmethod
    def open(cls, data_folder: Path) -> Self:
        """Return the cipher with the key of a data folder, which is created if there is none.

        Raises SettingError if the key cannot be read or stored, and where the library is not installed.
        """
        path = data_folder / KEY_FILE
        _load_library()  # before a key is created
        try:
            data_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                _write_key(path)
            key = _read_key(path)
        except OSError as error:
            raise SettingError(
                f"BOT_DATA_DIR: the key for secret settings cannot be stored in {path}: {error.strerror or error}; "
                "choose another folder"
            ) from None
        if len(key) != KEY_BYTES:
            raise SettingError(
                f"{path} contains no key: restore it from a backup; or remove it, and set the secret settings of "
                "worlds anew"
            )
        return cls(key)

    def encrypt(self, text: str, purpose: str) -> str:
        """Return a text encrypted for a purpose."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        encrypted: bytes = self._cipher.encrypt(nonce, text.encode(), purpose.encode())
        return PREFIX + base64.urlsafe_b64encode(nonce + encrypted).decode()

    def decrypt(self, text: str, purpose: str) -> str | None:
        """Return the text; None if it was not encrypted for this purpose with this key."""
        if not is_encrypted(text):
            return None
        try:
            data = base64.urlsafe_b64decode(text.removeprefix(PREFIX))
            decrypted: bytes = self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], purpose.encode())
            return decrypted.decode()
        except (binascii.Error, ValueError, importlib.import_module("cryptography.exceptions").InvalidTag):
            return None


def is_encrypted(text: str) -> bool:
    """Return whether a stored text is an encrypted one."""
    return text.startswith(PREFIX)


def _load_library() -> Any:
    """Return the class of the library's AES-GCM; raises SettingError where it is not installed."""
    try:
        return importlib.import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM
    except ModuleNotFoundError:
        raise SettingError(
            "a plugin declares a secret setting of worlds, and cryptography is not installed, which encrypts it: "
            "install the extra `secrets`"
        ) from None


def _read_key(path: Path) -> bytes:
    """Read the key, following no symbolic link; other users cannot read it from now on."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        if os.name == "posix" and stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
            logger.warning("%s was readable by others: set the secret settings of worlds anew, with a new key", path)
        text = file.read(MAX_KEY_FILE_BYTES)
    try:
        return base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        return b""


def _write_key(path: Path) -> None:
    """Write a new key atomically; the key of another process that was faster stays."""
    temporary_path = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(temporary_path, path)
        except FileExistsError:
            return
    finally:
        temporary_path.unlink()
