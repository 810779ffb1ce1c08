"""Values of settings as people write them, in YAML, on the command line or in Python, as those of the right types."""

from __future__ import annotations

import math
import numbers
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from .errors import InputError
from .utils import read_text

#: What a value must satisfy: the words for it, and the test.
Rule = tuple[str, Callable[[Any], bool]]
POSITIVE: tuple[Rule, ...] = (
    ("must be positive", lambda value: value > 0),
    ("must be at most 1e15", lambda value: value <= 1e15),
)
NOT_NEGATIVE: tuple[Rule, ...] = (("must not be negative", lambda value: value >= 0), POSITIVE[1])
COUNT: tuple[Rule, ...] = (
    ("must be at least 1", lambda value: value >= 1),
    ("must be at most 1000000", lambda value: value <= 10**6),
)
COUNT_OR_AUTO: tuple[Rule, ...] = (
    ("must be 'auto' or at least 1", lambda value: value == "auto" or value >= 1),
    ("must be at most 1000000", lambda value: value == "auto" or value <= 10**6),
)
FROM_ZERO: tuple[Rule, ...] = (("must not be negative", lambda value: value >= 0), COUNT[1])
SHARE: tuple[Rule, ...] = (("must be in [0, 1)", lambda value: 0 <= value < 1),)
PATH: tuple[Rule, ...] = (("must not contain a null byte", lambda value: "\0" not in value),)


def coerce(name: str, value: Any, kind: Any) -> Any:
    """``value``, from YAML or the command line, as the annotated type ``kind``; raises InputError if it is not one."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if type(None) in arguments and (value is None or (isinstance(value, str) and value.lower() == "none")):
            return None
        failures = []
        for each in arguments:
            try:
                if each is not type(None):
                    return coerce(name, value, each)
            except InputError as error:
                failures.append(error)
        raise failures[0]
    if origin is Literal:
        known = isinstance(value, str) and value in arguments
        require(known, name, f"must be one of {', '.join(arguments)}", value)
        return value
    if origin is tuple:
        items = value.split(",") if isinstance(value, str) else value
        items = items.tolist() if hasattr(items, "tolist") else items  # an array
        require(isinstance(items, (list, tuple)), name, "must be a comma-separated list", value)
        return tuple(coerce(name, item, arguments[0]) for item in items)
    if origin is Mapping:
        return _class_weights(name, value)
    if origin is Callable:
        require(callable(value), name, "must be a function", value)
        return value
    if kind is bool:
        require(isinstance(value, bool), name, "must be true or false", value)
        return value
    if kind is str:
        require(isinstance(value, (str, int, float)) and not isinstance(value, bool), name, "must be text", value)
        return str(value)
    return _number(name, value, kind)


def label_name(label: Any) -> str:
    """A label as text, by which settings name it, as JSON and YAML keep that. Equal labels have one name: 1 and 1.0."""
    label = label.item() if hasattr(label, "item") else label
    number = float(label) if isinstance(label, numbers.Real) else math.nan
    return str(int(label)) if number.is_integer() else str(label)


def _class_weights(name: str, value: Any) -> dict[str, float]:
    """Weights by the names of the labels, in the order of these."""
    require(isinstance(value, Mapping), name, "must be 'balanced' or map classes to weights", value)
    result: dict[str, float] = {}
    for label, weight in value.items():
        try:
            key = label_name(label)
        except (RuntimeError, TypeError, ValueError, OverflowError):  # tensors; numbers of thousands of digits
            raise InputError(f"{name} must map labels to weights, got the label {_show(label)}") from None
        number = _number(f"{name} of class {_show(key)}", weight, float)
        for rule, holds in NOT_NEGATIVE:
            require(holds(number), f"{name} of class {_show(key)}", rule, number)
        require(key not in result, name, f"names class {_show(key)} twice", value)
        result[key] = float(number)
    return dict(sorted(result.items()))


def _number(name: str, value: Any, kind: type) -> int | float:
    wanted = "a whole number" if kind is int else "a number"
    is_number = isinstance(value, (str, numbers.Real)) and not isinstance(value, bool)
    require(is_number, name, f"must be {wanted}", value)
    try:
        number = kind(value)
        whole = kind is not int or float(number) == float(value)
    except (ValueError, OverflowError):
        raise InputError(f"{name} must be {wanted}, got {_show(value)!r}") from None
    require(math.isfinite(number), name, "must be finite", value)
    require(whole, name, f"must be {wanted}", value)
    return number


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings of a file as they stand there, names with underscores."""
    text = read_text(path, "the configuration")
    try:
        settings = yaml.load(text, _PlainLoader)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise InputError(f"{path}: not valid YAML: {error}") from None
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise InputError(f"{path}: expected 'setting: value' lines")
    result: dict[str, Any] = {}
    for name, value in settings.items():
        key = str(name).replace("-", "_")
        if key in result:
            raise InputError(f"{path}: setting '{key}' is there twice")
        result[key] = value
    return result


class _PlainLoader(yaml.SafeLoader):
    """Plain values, each written out where it stands, and no key twice.

    Aliases and merge keys make a file of some hundred bytes one of billions of values, and no setting needs them. Of
    two values for one setting neither is what was meant for sure.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise _refused(f"'*{event.anchor}' stands for another value: write it out", event.start_mark)
        return super().compose_node(parent, index)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise _refused("'<<' merges other settings: write them out", key.start_mark)
        super().flatten_mapping(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key in seen:
                raise _refused(f"'{key}' is there twice", node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _refused(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _show(value: Any) -> str:
    """A short text of a value that may be long, deep or without end."""
    if isinstance(value, tuple) and all(isinstance(item, (int, float)) for item in value[:20]):
        return ",".join(f"{item:g}" for item in value[:20]) + (",..." if len(value) > 20 else "")
    if isinstance(value, str):
        return value if len(value) <= 60 else f"{value[:60]}..."
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to write out numbers of thousands of digits
        return "a number of thousands of digits"


def require(holds: bool, name: str, rule: str, value: Any) -> None:
    """Raise an :class:`InputError` that names the setting, the rule and the value, unless the rule holds."""
    if not holds:
        raise InputError(f"{name} {rule}, got {_show(value)}")
