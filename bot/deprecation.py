"""Tools that keep renamed names working for one release, with a DeprecationWarning."""

import functools
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

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

    if not TYPE_CHECKING:  # a type checker shall still report an unknown name

        def __getattr__(self, name: str) -> Any:
            new_name = type(self)._renamed.get(name)
            if new_name is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            _warn(f"{type(self).__name__}.{name}", new_name)
            return getattr(self, new_name)


def renamed_parameters(**renamed: str) -> Callable[[F], F]:
    """Return a decorator for a function or class that accepts old names of keywords: `old="new"`."""

    def decorate(target: F) -> F:
        if isinstance(target, type):
            target.__init__ = _translating(target.__init__, renamed)  # type: ignore[misc]  # the same signature
            return target
        return cast(F, _translating(target, renamed))

    return decorate


def _translating(function: Callable[..., Any], renamed: Mapping[str, str]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for old_name in renamed.keys() & kwargs.keys():
            _warn(f"{function.__qualname__}({old_name}=…)", f"{renamed[old_name]}=…")
            kwargs[renamed[old_name]] = kwargs.pop(old_name)
        return function(*args, **kwargs)

    return call


def _warn(old_name: str, new_name: str) -> None:
    warnings.warn(f"{old_name} is now {new_name}", DeprecationWarning, stacklevel=3)
