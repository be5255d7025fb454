"""Every record type, with values at the bounds of every field, encodes and decodes to the same value."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect as types

from relaymesh.errors import MeshError
from relaymesh.kernel.records import AnyRecord, Record
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.wire.records import decode_records, encode_records

RECORDS = typing.get_args(AnyRecord)
INTEGERS = (0, 1, 2**31, 2**53, 2**63 - 1)
"""What a record may hold where it holds a number: every bound of a command lies within."""
TEXTS = ("", "x", "é" * 300, "x" * 70_000, "\x00", "\ufffd", "\U0010ffff", "😀" * 1_000)
FLOATS = (0.0, 0.05, 1.0, 1e-300, 1_000_000.0)


def values(info: types.Type, inside: tuple[type, ...] = ()) -> st.SearchStrategy[Any]:
    """Values at the bounds of a type. `inside`: the structs around it, which are not nested twice."""
    if isinstance(info, types.UnionType):
        kinds = [each for each in info.types if getattr(each, "cls", None) not in inside]
        return st.one_of([values(each, inside) for each in kinds])
    if isinstance(info, types.StructType):
        return structs(info, inside)
    if isinstance(info, types.TupleType):
        return st.tuples(*[values(each, inside) for each in info.item_types])
    if isinstance(info, (types.ListType, types.VarTupleType)):
        made = st.lists(values(info.item_type, inside), max_size=3)
        return made if isinstance(info, types.ListType) else made.map(tuple)
    if isinstance(info, types.DictType):
        return st.dictionaries(values(info.key_type, inside), values(info.value_type, inside), max_size=3)
    plain: dict[type, st.SearchStrategy[Any]] = {
        types.IntType: st.sampled_from(INTEGERS),
        types.FloatType: st.sampled_from(FLOATS),
        types.StrType: st.sampled_from(TEXTS),
        types.BytesType: st.sampled_from((b"", b"{}", b"\xff" * 70_000)),
        types.BoolType: st.booleans(),
        types.NoneType: st.none(),
        types.AnyType: st.none(),
    }
    if isinstance(info, types.LiteralType):
        return st.sampled_from(info.values)
    return plain[type(info)]


def structs(info: types.StructType, inside: tuple[type, ...] = ()) -> st.SearchStrategy[Any]:
    """A struct whose fields are each at a bound; settings only as far as they are legal together."""
    fields = {each.name: values(each.type, (*inside, info.cls)) for each in info.fields}

    def made(given: dict[str, Any]) -> Any:
        kind: Any = info.cls
        if kind is not MailboxSettings:
            return legal(kind, given)
        settings = kind()
        for name, value in given.items():
            settings = legal_beside(settings, name, value)
        return settings

    return st.fixed_dictionaries(fields).map(made).filter(lambda value: value is not None)


def legal(kind: Any, given: dict[str, Any]) -> Any:
    try:
        return kind(**given)
    except MeshError:
        return None


def legal_beside(settings: MailboxSettings, name: str, value: Any) -> MailboxSettings:
    """The settings with this one changed, where that is legal."""
    try:
        return msgspec.structs.replace(settings, **{name: value})
    except MeshError:
        return settings


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_a_record_at_the_bounds_reads_back_as_it_was(kind: type[Record]) -> None:
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(structs(info))
    def reads_back(record: Any) -> None:
        assert decode_records(encode_records([record])) == [record]

    reads_back()
