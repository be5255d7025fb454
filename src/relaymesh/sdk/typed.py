"""The content of a message as a type of the receiver's own."""

from __future__ import annotations

from typing import Any, TypeVar, get_origin

import msgspec

from relaymesh.errors import InvalidValue
from relaymesh.kernel.bounds import shown
from relaymesh.kernel.envelope import Encoding, Envelope

__all__ = ["Model", "content_as"]

Model = TypeVar("Model")


def content_as(envelope: Envelope, kind: type[Model]) -> Model:
    """An instance of the type. Content that does not fit raises a `ValidationError` that names the field.

    A pydantic model is known by its `model_validate`, and raises pydantic's error; this imports none of it.
    """
    is_json = envelope.encoding == Encoding.JSON
    given: Any = kind  # whatever the caller passed, a type or not
    if isinstance(given, type) and callable(validate := getattr(given, "model_validate", None)):
        from_json = getattr(kind, "model_validate_json", None)
        if is_json and callable(from_json):
            return from_json(envelope.content)  # type: ignore[no-any-return]
        return validate(msgspec.json.decode(envelope.content) if is_json else envelope.content)  # type: ignore[no-any-return]
    try:
        if is_json:
            return msgspec.json.decode(envelope.content, type=kind)
        return msgspec.convert(envelope.content, kind)
    except msgspec.ValidationError:
        _check_known(kind)
        raise
    except TypeError as error:
        raise _unknown(kind) from error
    except Exception as error:
        if isinstance(kind, type) or get_origin(kind) is not None:
            raise  # of the type's own code
        raise _unknown(kind) from error


def _check_known(kind: Any) -> None:
    """Raise for a class that no content could fit: that is a mistake of the program, not of the sender."""
    if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
        raise _unknown(kind) from None


def _unknown(kind: Any) -> InvalidValue:
    return InvalidValue(
        f"content cannot be made into {shown(kind)}",
        hint="as_type takes a msgspec.Struct, a dataclass, a TypedDict, a pydantic model or a builtin type",
    )
