"""Tools that keep renamed names working for one release, with a DeprecationWarning."""

import functools
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def find_renamed(module: str, name: str, renamed: Mapping[str, str]) -> Any:
    """Return what `module` offered as `name`; `renamed` maps it to "module:Name" or a member.

    Raises AttributeError for a name that was never there.
    """
    if name not in renamed:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    place, _, path = renamed[name].partition(":")
    warnings.warn(f"{module}.{name} is now {path} of {place}", DeprecationWarning, stacklevel=3)
    return functools.reduce(getattr, path.split("."), import_module(place))


class RenamedMembers:
    """Base of public classes whose members were renamed: reading an old name returns the new member."""

    __slots__ = ()
    _renamed: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for old_name, new_name in cls.__dict__.get("_renamed", {}).items():
            setattr(cls, old_name, _RenamedMember(old_name, new_name))


class _RenamedMember:
    """Descriptor of one old name; a `__getattr__` would slow down every read of every attribute of the class."""

    def __init__(self, old_name: str, new_name: str) -> None:
        self._old_name = old_name
        self._new_name = new_name

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        _warn(f"{owner.__name__}.{self._old_name}", self._new_name)
        return getattr(instance, self._new_name)


def renamed_parameters(**renamed: str) -> Callable[[F], F]:
    """Return a decorator for a function or class that accepts old names of keywords: `old="new"`."""

    def decorate(target: F) -> F:
        if isinstance(target, type):
            target.__init__ = _translating(target.__init__, renamed)  # type: ignore[misc]  # the same signature
            return target
        return cast(F, _translating(target, renamed))

    return decorate


def _translating(function: Callable[..., Any], renamed: Mapping[str, str]) -> Callable[..., Any]:
    old_names = frozenset(renamed)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for old_name in old_names.intersection(kwargs):
            _warn(f"{function.__qualname__}({old_name}=…)", f"{renamed[old_name]}=…")
            kwargs[renamed[old_name]] = kwargs.pop(old_name)
        return function(*args, **kwargs)

    return call


def _warn(old_name: str, new_name: str) -> None:
    warnings.warn(f"{old_name} is now {new_name}", DeprecationWarning, stacklevel=3)
