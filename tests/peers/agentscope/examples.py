"""Instances of AgentScope's models in which every field is set, left out, and of every kind.

They are made from the models' own annotations, so that a field that a later version adds is
covered without a word here, or fails for want of an example.
"""

import itertools
import types
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AnyUrl, BaseModel, ValidationError

import values

Model = TypeVar("Model", bound=BaseModel)

BY_NAME: dict[str, tuple[Any, ...]] = {
    "id": ("4f1c", "id-é"),
    "created_at": ("2026-01-01T00:00:00", "2026-01-01T00:00:00.123456+02:00"),
    "finished_at": (None, "2026-01-01T00:00:01.5"),
    "media_type": values.MEDIA,
    "data": ("aGk=", "AAEC/w=="),
    "url": values.URLS,
    # First and last, where the fewest and the most fields are given, the role that holds any block.
    "role": ("assistant", "user", "system", "assistant"),
}
# An empty id is none to us.
BY_NAME |= dict.fromkeys(("block_id", "reply_id", "session_id", "tool_call_id"), BY_NAME["id"])

BY_TYPE: dict[Any, tuple[Any, ...]] = {
    str: ("x", "", "".join(values.PIECES)),
    int: (0, 17, 2**53 + 1),
    bool: (True, False),
    AnyUrl: values.URLS,
    type(None): (None,),
    dict: ({}, {"a": {"b": [1, 0.5, None, "é\n"]}, "": list(values.NUMBERS)}),
}


def examples(name: str, annotation: Any) -> tuple[Any, ...]:
    """Values for a field: at least one of everything that its annotation allows."""
    if name in BY_NAME:
        return BY_NAME[name]
    if annotation in BY_TYPE:
        return BY_TYPE[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return args
    if origin in (Union, types.UnionType):
        return tuple(itertools.chain.from_iterable(examples(name, arg) for arg in args))
    if origin is list:
        items = examples("", args[0])
        return [], list(items), list(items[-2:])
    if origin is dict:
        return BY_TYPE[dict]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return instances(annotation)
    raise NotImplementedError(f"no example for {name}: {annotation}")


@cache
def instances(model: type[Model]) -> tuple[Model, ...]:
    """Instances with every example of every field, and without every optional field."""
    fields = {name: examples(name, field.annotation) for name, field in model.model_fields.items()}
    given = [choice for choice in choices(model, fields) if is_valid(model, choice)]
    for name, field in model.model_fields.items():
        for value in fields[name]:
            occurs = any(name in choice and choice[name] is value for choice in given)
            assert occurs, f"no {model.__name__} has {name}={value!r}"
        absent = any(name not in choice for choice in given)
        assert absent or field.is_required(), f"every {model.__name__} has {name}"
    return tuple(model(**choice) for choice in given)


Given = dict[str, Any]


def choices(model: type[BaseModel], fields: dict[str, tuple[Any, ...]]) -> Iterator[Given]:
    """As little as can be and as much as can be, and from there each field with each value."""
    needed = {n: fields[n][0] for n, field in model.model_fields.items() if field.is_required()}
    whole = {name: values[-1] for name, values in fields.items()}
    # A model may have a rule of its own, such as either data or a URL.
    least = [needed, *(needed | {name: values[0]} for name, values in fields.items())]
    most = [whole, *({n: v for n, v in whole.items() if n != name} for name in fields)]
    for base in (least, most):
        first = next(choice for choice in base if is_valid(model, choice))
        yield first
        yield from (first | {name: value} for name, values in fields.items() for value in values)
        yield from ({n: v for n, v in first.items() if n != name} for name in fields)
    yield from least + most


def is_valid(model: type[BaseModel], given: Given) -> bool:
    try:
        model(**given)
    except ValidationError:
        return False
    return True
