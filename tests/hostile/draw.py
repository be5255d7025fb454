"""Arguments for a call: good ones, so that states get deep, and hostile ones among them.

Everything is a line of Python. `Drawn.hostile` says how many of the values are hostile.
"""

from __future__ import annotations

import dataclasses
import random
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from relaymesh import MeshSettings, RemoteSettings
from tests.hostile.surface import Parameter, Public
from tests.hostile.values import ERRORS, HOSTILE, NUMBERS, TEXTS

AGENTS = ("'a1'", "'a1'", "'a2'", "'a3'", "'w1'")
TOPICS = ("'t.one'", "'t.two'", "'t.one.more'")
PATTERNS = ("'t.one'", "'t.*'", "'t.**'")
SUBSCRIPTIONS = ("'s1'", "'s2'")
CONTENT = (
    "{'do': 'x'}",
    "1",
    "'text'",
    "None",
    "b'bytes'",
    "[1, 2.5, None, {'a': []}]",
    "''",
    "{'n': 2**53}",
)
CONTRACTS = (
    "{ValueError: Reject}",
    "{ValueError: Retry(times=2), 'timeout': Drop}",
    "{'other': Rule(1)}",
    "{KeyError: Rule(0, exit='drop', alert=True)}",
    "{'other': Rule(0, exit='success')}",
    "{}",
)

GOOD: dict[str, tuple[str, ...]] = {
    "workflow": (
        "{'workflow': 'w', 'steps': {'s': {'agent': 'a1'}}}",
        "Workflow('w')",
        "{'workflow': 'w', 'steps': {'s': {'agent': {'capability': 'code'}}}}",
    ),
    "name": AGENTS,
    "to": AGENTS,
    "reply_to": AGENTS,
    "receiver": (*AGENTS, "'default/a1'"),
    "sender": AGENTS,
    "topic": TOPICS,
    "content": CONTENT,
    "id": ("None", "'m-1'", "'m-2'", "ID"),
    "type": ("'message'", "'task_assign'", "'question'", "'status_report'"),
    "priority": ("1", "2", "3", "4", "5", "'high'", "Priority.LOW"),
    "task": ("None", "'task-1'", "'task-2'"),
    "key": ("None", "'k1'", "'k2'"),
    "delay_ms": ("0", "0", "5", "250", "60_000", "None"),
    "ttl": ("3600", "60", "86_400"),
    "correlation_id": ("None", "'c-1'", "ID"),
    "requires_ack": ("True", "False"),
    "tags": ("()", "['a', 'b']"),
    "max_retries": ("None", "0", "1", "5"),
    "timeout": ("0",),
    "trace": ("None", "'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'"),
    "extra": ("None", "{'model': 'x', 'cost': 0.5}"),
    "max": ("1", "2", "10"),
    "limit": ("1", "10", "100"),
    "ms": ("1000", "30_000", "1"),
    "code": ("'timeout'", "'other'", "'rate_limited'", "'invalid'", "'mine'"),
    "reason": ("''", "'busy'"),
    "error": ("'failed'", "None", "ValueError('no')"),
    "retryable": ("True", "True", "False"),
    "until": ("None", "time.time() + 30", "datetime(2030, 1, 1, tzinfo=timezone.utc)"),
    "since": ("None", "datetime(2020, 1, 1, tzinfo=timezone.utc)"),
    "status": ("'pending'", "None"),
    "ids": ("None", "['m-1']", "frozenset({'m-1'})"),
    "contract": CONTRACTS,
    "capacity": ("5", "1_000", "100_000"),
    "capacity_bytes": ("10_000", "268_435_456"),
    "delivery_semantics": ("'at_least_once'", "'at_most_once'", "'exactly_once'"),
    "overflow": ("'reject'", "'dead_letter'"),
    "schedule": ("'weighted'", "'strict'", "'fifo'"),
    "lease_ms": ("0", "1_000", "60_000"),
    "backoff_ms_base": ("0", "10", "1_000"),
    "backoff_ms_cap": ("1_000", "300_000"),
    "backoff_jitter": ("0", "0.25", "1"),
    "breaker_retry_rate": ("0.05", "1", "0"),
    "rate_per_s": ("0", "100.0", "1_000_000"),
    "rate_burst": ("0", "10"),
    "edit": ("None", "{'new': 1}", "lambda content: [content]"),
    "seconds": ("0", "0.01"),
    "handler": (
        "raises(ValueError('no'))",
        "returns(None)",
        "calls('ack')",
        "raises(Retry('busy', after=1))",
    ),
    "after": ("None", "0", "1.5"),
    "times": ("None", "0", "3"),
    "retries": ("0", "3"),
    "exit": ("'dead_letter'", "'drop'", "'success'"),
    "path": ("DIRECTORY",),
    "durability": ("None", "'synced'", "'batched'", "'memory'"),
    "settings": ("None", "MeshSettings()", "RemoteSettings()"),
    "workers": ("(1, 2)", "(4, 8)"),
    "clock": ("None",),
    "disk": ("None",),
    "seed": ("0", "7"),
    "token": ("None",),
    "transport": ("None",),
    "mirror": ("None",),
    "journal": ("JournalSettings()",),
    "delayed_on_stop": ("None", "'keep'", "'deliver'"),
    "mirror_mode": ("'required'", "'best_effort'"),
    "message": ("'what happened'",),
    "hint": ("None", "'what to do'"),
    "mailbox": ("None", "'default/a1'"),
    "value": ("1", "5"),
}
"""By the name of a parameter; what has no row here is drawn by its annotation."""

OF_MEMBER: dict[tuple[str, str], tuple[str, ...]] = {
    ("subscribe", "topic"): PATTERNS,
    ("unsubscribe", "topic"): PATTERNS,
    ("on", "topic"): PATTERNS,
    ("subscribe", "name"): SUBSCRIPTIONS,
    ("unsubscribe", "name"): SUBSCRIPTIONS,
    ("on", "name"): ("'s3'", "'s4'", "None"),
    ("delayed_count", "name"): (*AGENTS, "None"),
    ("force_deliver_delayed", "name"): (*AGENTS, "None"),
    ("dead_letters", "reason"): ("None", "'retries_exhausted'"),
    ("redrive", "reason"): ("None", "'retries_exhausted'"),
    ("purge_dead_letters", "reason"): ("None", "'not_retryable'"),
    ("redrive", "to"): ("None", "'a2'"),
    ("purge", "done_older_than"): ("None", "0", "86_400", "timedelta(days=1)"),
    ("purge", "dead_older_than"): ("None", "86_400", "timedelta(days=1)"),
    ("purge", "reason"): ("None", "'it is old'"),
    ("dead_letter_report", "day"): ("None", "None", "'2026-01-01'"),
}

BY_TYPE: dict[type, tuple[str, ...]] = {
    bool: ("True", "False"),
    int: ("1", "5", "1_000"),
    float: ("1.0", "0.5", "30"),
    str: ("'text'", "'x'"),
    bytes: ("b'x'",),
    dict: ("{}",),
}


@dataclass
class Drawn:
    """The arguments of one call, as lines of Python."""

    positional: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    hostile: int = 0
    values: int = 0

    def __str__(self) -> str:
        return ", ".join([*self.positional, *[_keyword(name, value) for name, value in self.named.items()]])


def _keyword(name: str, value: str) -> str:
    return f"{name}={value}" if name.isidentifier() else f"**{{{name!r}: {value}}}"


class Draw:
    """Draws arguments from a seed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._made = 0

    def arguments(self, public: Public, *, references: Mapping[str, Sequence[str]]) -> Drawn:
        """Arguments for one call. `references`: good values of parameters that name things of this run."""
        rng = self.rng
        chosen = self._chosen(public)
        roll = rng.random()
        spoiled: set[str] = set()
        if chosen and roll < 0.72:
            spoiled = {each.name for each in rng.sample(chosen, 1 if roll < 0.64 else min(2, len(chosen)))}
        drawn = Drawn()
        for each in chosen:
            if each.name in spoiled:
                source = self.hostile(each)
            else:
                source = self.good(public.member, each, references)
            if each.required and each.positional and not drawn.named:
                drawn.positional.append(source)
            else:
                drawn.named[each.name] = source
        drawn.hostile, drawn.values = len(spoiled), len(chosen)
        if roll > 0.98:
            self._misuse(drawn)
        return drawn

    def _chosen(self, public: Public) -> list[Parameter]:
        """What is required, and some of the rest: mostly few, now and then many."""
        rng = self.rng
        required = [each for each in public.parameters if each.required]
        optional = [each for each in public.parameters if not each.required]
        most = len(optional) if rng.random() < 0.05 else min(3, len(optional))
        count = rng.randint(0 if required or rng.random() < 0.1 else min(1, most), most)
        picked = {each.name for each in rng.sample(optional, count)}
        return [each for each in public.parameters if each.required or each.name in picked]

    def _misuse(self, drawn: Drawn) -> None:
        """A wrong keyword, one argument too many, or one too few."""
        roll = self.rng.random()
        if roll < 0.4:
            drawn.named["no_such_keyword"] = self.rng.choice(HOSTILE)
        elif roll < 0.7:
            drawn.positional += ["1"] * 9
        elif drawn.positional:
            drawn.positional.pop()

    # -- one value

    def good(self, member: str, parameter: Parameter, references: Mapping[str, Sequence[str]]) -> str:
        name = parameter.name
        if name in references:
            return self.rng.choice(references[name])
        if name == "messages":
            return self._messages(None, with_to=member.startswith("send"))
        sources = OF_MEMBER.get((member, name)) or GOOD.get(name) or _by_annotation(parameter.annotation)
        source = self.rng.choice(sources)
        if source == "ID":
            self._made += 1
            return f"'made-{self._made}'"
        return source

    def hostile(self, parameter: Parameter) -> str:
        """A hostile value, or one inside a value of the right shape."""
        rng = self.rng
        raw = self.raw(parameter.annotation)
        name = parameter.name
        if rng.random() < 0.35:
            return raw
        if name == "messages":
            return self._messages(raw, with_to=rng.random() < 0.7)
        wraps = WRAPS.get(name)
        if wraps is None and name == "settings":
            wraps = _settings_wraps()
        if wraps is None:
            wraps = _shape(parameter.annotation)
        if name in ("handler", "error") and rng.random() < 0.4:
            error = rng.choice(ERRORS)
            return error if name == "error" else f"raises({error})"
        return rng.choice(wraps).replace("HOSTILE", raw)

    def raw(self, annotation: object) -> str:
        text = str(annotation)
        roll = self.rng.random()
        if roll < 0.45 and ("int" in text or "float" in text or "datetime" in text):
            return self.rng.choice(NUMBERS)
        if roll < 0.45 and "str" in text:
            return self.rng.choice(TEXTS)
        return self.rng.choice(HOSTILE)

    def _messages(self, raw: str | None, *, with_to: bool) -> str:
        """A batch, one of its fields hostile if asked for."""
        rng = self.rng
        batch = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            row = {"content": rng.choice(CONTENT)}
            if with_to:
                row["to"] = rng.choice(AGENTS)
            for name in rng.sample(FIELDS, rng.choice((0, 0, 1, 2))):
                source = rng.choice(GOOD[name])
                row[name] = "None" if source == "ID" else source
            batch.append(row)
        if raw is not None:
            row = rng.choice(batch)
            row[rng.choice([*row, *FIELDS])] = raw
        lines = ["{" + ", ".join(f"{name!r}: {value}" for name, value in row.items()) + "}" for row in batch]
        return "[" + ", ".join(lines) + "]"


FIELDS = tuple(
    name for name in ("id", "type", "priority", "task", "key", "delay_ms", "ttl", "correlation_id",
    "reply_to",
                      "requires_ack", "tags", "max_retries", "trace", "extra")
)  # fmt: skip

WRAPS: dict[str, tuple[str, ...]] = {
    "content": ("{'x': HOSTILE}", "[HOSTILE]", "{'a': {'b': [1, HOSTILE]}}", "(HOSTILE,)",
    "Mapped(x=HOSTILE)"),
    "extra": ("{'x': HOSTILE}", "{HOSTILE: 1}", "{'leaseToken': HOSTILE}", "Mapped(x=HOSTILE)",
    "{'x' * 300: HOSTILE}"),
    "contract": (
        "{ValueError: HOSTILE}", "{HOSTILE: Retry}", "{ValueError: Retry(times=HOSTILE)}",
        "{'other': Rule(HOSTILE)}",
        "{'other': Rule(1, exit=HOSTILE)}", "{'other': Rule(1, alert=HOSTILE)}",
        "{ValueError: changed(Retry(), times=HOSTILE)}", "Mapped({'other': Rule(HOSTILE)})",
    ),
    "error": ("ValueError(HOSTILE)", "Retry(HOSTILE)", "Reject(HOSTILE)", "changed(Retry(), after=HOSTILE)",
              "OSError(HOSTILE, HOSTILE)", "changed(ValueError(), status_code=HOSTILE)", "KeyError(HOSTILE)"),
    "handler": (
        "raises(Retry(after=HOSTILE))", "raises(Retry(until=HOSTILE))", "raises(Retry(HOSTILE))",
        "returns(HOSTILE)",
        "raises(changed(Retry(), after=HOSTILE))", "raises(changed(Retry(), until=HOSTILE))",
        "raises(HOSTILE)",
        "raises(Reject(HOSTILE))", "raises(ValueError(HOSTILE))", "calls('nack', HOSTILE)",
        "calls('extend', HOSTILE)",
        "calls('nack', delay_ms=HOSTILE)", "calls('nack', until=HOSTILE)", "calls('nack', code=HOSTILE)",
        "calls('ack', durable=HOSTILE)", "raises(changed(ValueError(), status_code=HOSTILE))",
    ),
    "edit": ("lambda content: HOSTILE", "{'x': HOSTILE}", "lambda: HOSTILE", "raises(ValueError(HOSTILE))"),
    "which": ("[HOSTILE]", "['m-1', HOSTILE]", "(each for each in [HOSTILE])", "{HOSTILE}"),
    "deliveries": ("[HOSTILE]", "[DELIVERY, HOSTILE]", "(each for each in [DELIVERY])",
    "(DELIVERY, DELIVERY)"),
    "tags": ("[HOSTILE]", "['a', HOSTILE]", "HOSTILE", "(each for each in ['a', HOSTILE])",
    "['x' * 100] * 100"),
    "ids": ("[HOSTILE]", "['m-1', HOSTILE]", "frozenset({'m-1'})", "{'m-1': HOSTILE}"),
    "workers": ("(HOSTILE, 8)", "(1, HOSTILE)", "[1, 2]"),
    "mirror": ("DIRECTORY + '-mirror'", "HOSTILE"),
}  # fmt: skip


def _settings_wraps() -> tuple[str, ...]:
    return tuple(
        f"{kind.__name__}({each.name}=HOSTILE)"
        for kind in (MeshSettings, RemoteSettings)
        for each in dataclasses.fields(kind)
    )


def _shape(annotation: object) -> tuple[str, ...]:
    text = str(annotation)
    if "Sequence" in text or "Iterable" in text or "list" in text:
        return ("[HOSTILE]", "(each for each in [HOSTILE])")
    if "Mapping" in text or "dict" in text:
        return ("{'x': HOSTILE}", "{HOSTILE: 1}")
    return ("HOSTILE",)


def _by_annotation(annotation: object) -> tuple[str, ...]:
    if typing.get_origin(annotation) is typing.Literal:
        return tuple(repr(each) for each in typing.get_args(annotation))
    if isinstance(annotation, type) and annotation in BY_TYPE:
        return BY_TYPE[annotation]
    for each in typing.get_args(annotation):
        if each is not type(None):
            return (
                (*_by_annotation(each), "None")
                if type(None) in typing.get_args(annotation)
                else _by_annotation(each)
            )
    return ("1", "'text'", "None")
