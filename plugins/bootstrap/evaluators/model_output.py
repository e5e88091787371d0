"""What a model has noted about a talk, read from however it wrote that down."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bot.prompts import TagTree, parse_tag_tree

MOST = 20
_NUMBER = re.compile(r"\d{1,6}")
_COMMA = re.compile(r"[,;\n]")


@dataclass(frozen=True, slots=True)
class Claim:
    """A fact, the number of the message it comes from, and the numbers of the facts it corrects.

    `about` is whom it is about, and `kind` what it tells of them; blank where the model says nothing.
    """

    text: str
    message: int | None = None
    replaces: tuple[int, ...] = ()
    about: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """The number of a known fact that is to be forgotten, and that of the message asking for it."""

    fact: int
    message: int | None = None


@dataclass(frozen=True, slots=True)
class Tie:
    """How one person stands to another, by whatever names them."""

    source: str
    target: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Insights:
    """Everything noted in one reflection."""

    claims: tuple[Claim, ...] = ()
    wishes: tuple[Wish, ...] = ()
    ties: tuple[Tie, ...] = ()


def read_insights(raw: str) -> Insights:
    """Read the tags that the template asks for, or JSON of that shape; what is neither notes nothing."""
    tree = parse_tag_tree(raw)
    claims = [_claim(one) for one in _listed(tree, "facts", "fact")]
    wishes = [_wish(one) for one in _listed(tree, "forgotten", "fact")]
    ties = [_tie(one) for one in _listed(tree, "relationships", "relationship")]
    return Insights(
        tuple(one for one in claims if one.text)[:MOST],
        tuple(one for one in wishes if one is not None)[:MOST],
        tuple(one for one in ties if one.source and one.target)[:MOST],
    )


def _claim(one: TagTree) -> Claim:
    if not isinstance(one, dict):
        return Claim(_text(one))
    text = _first(one, "text", "fact", "claim", "content")
    about, kind = _first(one, "about", "subject", "who"), _first(one, "kind", "type").casefold()
    message, replaces = _number(_first(one, "message", "source")), _numbers(_first(one, "replaces"))
    return Claim(text, message, replaces, about, kind)


def _wish(one: TagTree) -> Wish | None:
    if not isinstance(one, dict):
        return None
    fact = _number(_first(one, "number", "fact", "id"))
    return Wish(fact, _number(_first(one, "message", "source"))) if fact is not None else None


def _tie(one: TagTree) -> Tie:
    if not isinstance(one, dict):
        return Tie("", "")
    source, target = _first(one, "source", "sourceEntityId"), _first(one, "target", "targetEntityId")
    tags = (tag.strip() for tag in _COMMA.split(_first(one, "tags", "tag")))
    return Tie(source, target, tuple(tag for tag in tags if tag))


def _listed(tree: TagTree, plural: str, singular: str) -> Iterator[TagTree]:
    """List what stands under a name: `<facts><fact>…`, several of those, or a list in JSON."""
    found = _folded(tree).get(plural, "") if isinstance(tree, dict) else ""
    for group in found if isinstance(found, list) else [found]:
        inside = _folded(group).get(singular) if isinstance(group, dict) else None
        if isinstance(inside, list):
            yield from inside
        elif isinstance(inside, dict) or (inside and isinstance(group, dict) and len(group) == 1):
            yield inside
        elif group:
            yield group


def _folded(tree: Mapping[str, TagTree]) -> dict[str, TagTree]:
    return {name.casefold(): value for name, value in tree.items()}


def _first(tree: Mapping[str, TagTree], *names: str) -> str:
    members = _folded(tree)
    return next((text for name in names if (text := _text(members.get(name.casefold(), "")))), "")


def _text(value: TagTree) -> str:
    """Give a value as one text: a list by commas, also one of `<tag>a</tag><tag>b</tag>`."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_text, value)))
    if isinstance(value, dict):
        return ", ".join(filter(None, map(_text, value.values())))
    return value.strip()


def _number(text: str) -> int | None:
    return next(iter(_numbers(text)), None)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in _NUMBER.findall(text))
