"""The server's token between starts: one small file that nobody else may read."""

import logging
import os
import secrets
import stat
from pathlib import Path

from adapters.web.config import is_usable
from bot import SettingError

logger = logging.getLogger(__name__)
NAME = "server-token"
LARGEST = 4096


def kept_token(folder: Path) -> str:
    """Read the token kept in a folder; made there, with the folder, where there is none yet.

    Raises SettingError where the file cannot be read or written, or holds no token.
    """
    path = folder / NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = _read(path)
        if not token:
            _write(path, secrets.token_urlsafe(32))
            token = _read(path)
    except OSError as error:
        raise SettingError(
            f"BOT_DATA_DIR: the server's token cannot be kept in {path}: {error.strerror or error}; choose "
            "another folder, or set SERVER_TOKEN"
        ) from None
    if not is_usable(token):
        raise SettingError(f"{path} holds no usable token: remove the file, and a new one is made")
    return token


def _read(path: Path) -> str:
    try:
        # Neither a link that leads elsewhere nor a pipe that never ends.
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return ""
    with os.fdopen(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            os.fchmod(fd, 0o600)
            logger.warning("%s could be read by others; remove it and start again for a new token", path)
        return file.read(LARGEST).decode("utf-8", "replace").strip()


def _write(path: Path, token: str) -> None:
    """Put a token in place as a whole; where another process was faster, its token stands."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(f"{token}\n".encode())
            file.flush()
            os.fsync(fd)
        if path.exists() and path.stat().st_size == 0:
            path.unlink()  # a start that died before it had written anything
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()
