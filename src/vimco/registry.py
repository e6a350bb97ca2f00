"""Registries: everything that a user can name is registered where it is defined, with a title and typed options.

The options of an entry are the keyword-only parameters of its builder, `name: Annotated[type, "help"] = default`. They
are written `name=value`, on the command line and in configurations; only those that differ from the default are kept.
An underscore in a name is written as a dash. A type is int, float (finite), bool (`true`, `false`), str, a `Literal`,
`tuple[float, ...]` (`0,0.5`), or one of these with `| None` (`none`). An integer after the help text is the largest
value of an int, and the greatest length of a tuple: what a loop is unrolled over needs one.
"""

import functools
import importlib
import inspect
import math
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from vimco.errors import UsageError

LARGEST = 2**31 - 1  # the largest integer of an option


class Option(NamedTuple):
    """One option of an entry."""

    hint: Any  # its type
    default: Any
    help: str
    most: int = LARGEST  # the largest integer, and the greatest length of a list


@dataclass(frozen=True)
class Named:
    """A registered thing: its kind and name, a readable title, and its builder."""

    kind: str
    name: str
    title: str
    build: Callable[..., Any]

    @property
    def help(self) -> str:
        """The first paragraph of the builder's docstring."""
        return " ".join((inspect.getdoc(self.build) or "").split("\n\n")[0].split())

    @functools.cached_property
    def options(self) -> dict[str, Option]:
        """Its options by name."""
        hints = typing.get_type_hints(self.build, include_extras=True)
        found = {}
        for name, parameter in inspect.signature(self.build).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                hint = hints.get(name)
                hint, *notes = typing.get_args(hint)[:3] if typing.get_origin(hint) is Annotated else (hint, "")
                if parameter.default is parameter.empty or not is_known(hint):
                    raise UsageError(
                        f"The builder of {self.kind} {self.name} must give its option {name!r} a default and a type: "
                        "int, float, bool, str, a Literal, a tuple such as tuple[float, ...], or one of these | None."
                    )
                found[name.replace("_", "-")] = Option(hint, parameter.default, *notes)
        return found

    def canonical(self, words: Iterable[str]) -> tuple[str, ...]:
        """Return options written `name=value` in one form: checked, in the order of the table, without defaults."""
        values = self.arguments(words)
        return tuple(
            f"{name}={text(values[argument])}"
            for name, option in self.options.items()
            if (argument := name.replace("-", "_")) in values and values[argument] != option.default
        )

    def arguments(self, words: Iterable[str]) -> dict[str, Any]:
        """Return options written `name=value` as keyword arguments of the builder."""
        values: dict[str, Any] = {}
        for word in words:
            name, is_there, value = word.partition("=")
            name = name.strip().replace("_", "-")
            if not is_there:
                raise UsageError(f"An option of {self.kind} {self.name} is written name=value; got {word!r}.")
            if name not in self.options:
                known = ", ".join(self.options)
                raise UsageError(
                    f"The {self.kind} {self.name} has no option {name!r}"
                    + (f"; its options are {known}." if known else ", nor any other.")
                )
            hint, _, _, most = self.options[name]
            try:
                number = values[name.replace("-", "_")] = parsed(value.strip(), hint)
            except ValueError:
                raise UsageError(
                    f"The option {name!r} of {self.kind} {self.name} must be {in_words(hint, 'none')}; got {value!r}."
                ) from None
            if isinstance(number, int | tuple) and (len(number) if isinstance(number, tuple) else number) > most:
                raise UsageError(f"The option {name!r} of {self.kind} {self.name} goes up to {most:,}; got {value}.")
            if isinstance(number, tuple) and any(isinstance(item, int) and item > LARGEST for item in number):
                raise UsageError(
                    f"The numbers of the option {name!r} of {self.kind} {self.name} go up to {LARGEST:,}; got {value}."
                )
        return values


T = TypeVar("T")
E = TypeVar("E", bound=Named)
Builder = TypeVar("Builder", bound=Callable[..., Any])


class Names(dict[str, T], Generic[T]):
    """Things of one kind by name. `others` says where those come from that are not here."""

    def __init__(self, kind: str, others: str = "One of your own comes with --plugin FILE."):
        super().__init__()
        self.kind, self.others = kind, others

    def add(self, name: str, thing: T) -> None:
        """Add a thing; refuse a second one of the same name."""
        if name in self:
            raise UsageError(f"The name {name!r} is taken by another {self.kind}: choose another name for this one.")
        self[name] = thing

    def __missing__(self, name: str) -> T:
        raise UsageError(f"There is no {self.kind} {name!r}; choose one of {', '.join(sorted(self))}. {self.others}")


class Registry(Names[E]):
    """Builders of one kind by name, each with a title and typed options."""

    def __init__(self, kind: str, entry: type[E]):
        super().__init__(kind)
        self.entry = entry

    def register(self, name: str, title: str, **facts: Any) -> Callable[[Builder], Builder]:
        """Return a decorator that registers a builder; `facts` are the other fields of the entry."""

        def registered(build: Builder) -> Builder:
            self.add(name, self.entry(self.kind, name, title, build, **facts))
            return build

        return registered

    def title_of(self, name: str) -> str:
        """Return the readable title of a name, or the name itself if it is not registered."""
        return self[name].title if name in self else name


def import_modules(package: str) -> None:
    """Import every module of a package, so that each registers what it defines."""
    for module in pkgutil.iter_modules(sys.modules[package].__path__):
        importlib.import_module(f"{package}.{module.name}")


def parsed(word: str, hint: Any) -> Any:
    """Return the value of a word as this type; raise ValueError if it has none."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        if word == "none":
            return None
        return parsed(word, next(argument for argument in arguments if argument is not types.NoneType))
    if origin is Literal:
        return arguments[[str(argument) for argument in arguments].index(word)]  # ValueError if it is none of them
    if origin is tuple:
        return tuple(parsed(part.strip(), arguments[0]) for part in word.split(","))
    if hint is bool:
        return bool(("false", "true").index(word))
    value = hint(word)
    if hint is float and not math.isfinite(value):
        raise ValueError(word)
    return value


def text(value: Any) -> str:
    """Return a value as a word: the inverse of `parsed`."""
    if isinstance(value, tuple):
        return ",".join(map(text, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def fits(value: object, hint: Any) -> bool:
    """Return whether a value has a type. An integer that a float can hold is also one; true and false are not."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return any(fits(value, argument) for argument in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(item, arguments[0]) for item in value)
    if hint in (int, float) and (isinstance(value, bool) or (isinstance(value, int) and abs(value) > 10**300)):
        return False
    return isinstance(value, (int, float)) if hint is float else isinstance(value, hint)


_NAMES = {
    int: "an integer",
    float: "a finite number",
    str: "a string",
    bool: "true or false",
}


def in_words(hint: Any, none: str = "null") -> str:
    """Return the name of a type in messages; None is null in JSON, and none in options."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is types.NoneType:
        return none
    if origin is types.UnionType:
        return " or ".join(in_words(argument, none) for argument in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is tuple:
        name = _NAMES[arguments[0]]
        return f"a list of {name}" if arguments[0] is bool else f"a list of {name.partition(' ')[2]}s"
    return _NAMES[hint]


def is_known(hint: Any) -> bool:
    """Return whether options may have this type."""
    try:
        return bool(in_words(hint))
    except KeyError:
        return False
