"""Small sums worked out exactly, because people try a bot with them first."""

import re
from fractions import Fraction

from plugins.offline.script import SIGNS


def reckoned(text: str) -> str:
    """The value of a small sum such as "12 times (3 + 4)"; empty if it has none or is too large."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower())
    for word, sign in SIGNS.items():
        text = text.replace(word, sign)
    tokens = re.findall(r"\d+(?:\.\d+)?|[-+*/()]", text)[::-1]
    if len(tokens) > 30 or any(len(token) > 12 for token in tokens):
        return ""
    try:
        value = _added(tokens)
    except (ValueError, IndexError, ZeroDivisionError):
        return ""
    if tokens or abs(value) >= 10**15:
        return ""
    if value.denominator == 1:
        return str(value)
    short = f"{float(value):.4f}".rstrip("0") if abs(value) >= 1 else f"{float(value):.4g}"
    return short if Fraction(short) == value else f"about {short}"


def _added(tokens: list[str]) -> Fraction:
    value = _multiplied(tokens)
    while tokens and tokens[-1] in "+-":
        value = value + _multiplied(tokens) if tokens.pop() == "+" else value - _multiplied(tokens)
    return value


def _multiplied(tokens: list[str]) -> Fraction:
    value = _factor(tokens)
    while tokens and tokens[-1] in "*/":
        value = value * _factor(tokens) if tokens.pop() == "*" else value / _factor(tokens)
    return value


def _factor(tokens: list[str]) -> Fraction:
    token = tokens.pop()
    if token == "-":
        return -_factor(tokens)
    if token != "(":
        return Fraction(token)
    value = _added(tokens)
    if tokens.pop() != ")":
        raise ValueError("a bracket stays open")
    return value
