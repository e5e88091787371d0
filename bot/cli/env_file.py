"""Write variables into `.env`: atomically, readable by its owner only, every other line as it was."""

import io
import re
from collections.abc import Mapping
from pathlib import Path

from dotenv.parser import parse_stream

from bot.errors import SettingError
from bot.files import replace_file

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN_VALUE = re.compile(r"[A-Za-z0-9_./:@%+,-]*")
BYTE_ORDER_MARK = "\ufeff"


def write_variables(values: Mapping[str, str], path: Path) -> None:
    """Set variables in the file, which is created if need be; a blank value stands for a variable that is not set.

    A variable that the file has is changed where it stands, others are appended. Raises SettingError, without the
    value, for one that no line can hold, and for a file that cannot be read or written.
    """
    for name, value in values.items():
        if not NAME.fullmatch(name):
            raise SettingError(f"{name!r} is not the name of a variable: use letters, digits and _")
        if not value.isprintable():
            raise SettingError(f"the value of {name} has characters that {path} cannot hold: copy it again")
    path = path.resolve()  # a link stays a link
    try:
        text = path.read_bytes().decode() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read as text in UTF-8: {error}") from None
    try:
        replace_file(path, _change_lines(text, values).encode())
    except OSError as error:
        raise SettingError(f"{path}: cannot be written: {error.strerror or error}") from None


def _change_lines(text: str, values: Mapping[str, str]) -> str:
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    newline = "\r\n" if "\r\n" in text else "\n"
    bindings = list(parse_stream(io.StringIO(text.removeprefix(mark), newline="")))
    places = {binding.key: index for index, binding in enumerate(bindings) if binding.key in values}  # the last counts
    parts = [binding.original.string for binding in bindings]
    for name, index in places.items():
        value, line = values[str(name)], parts[index]
        if bindings[index].value != value:  # what stands before the name stays
            start = line[: len(line) - len(line.lstrip())]
            export = "export " if line.lstrip().startswith("export") else ""
            parts[index] = f"{start}{export}{name}={_quote(value)}{newline}"
    result = "".join(parts)
    new_lines = [f"{name}={_quote(value)}{newline}" for name, value in values.items() if name not in places and value]
    if new_lines and result and not result.endswith("\n"):
        result += newline
    return mark + result + "".join(new_lines)


def _quote(value: str) -> str:
    if PLAIN_VALUE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
