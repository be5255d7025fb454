"""Breaker and rate limit, whatever happens: nothing early, nothing lost, nothing stuck."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.kernel.commands import SetBreaker
from relaymesh.kernel.deliveries import DeliveryRow
from tests.kernel.driver import SECOND, names, replay
from tests.kernel.durable import durable
from tests.kernel.patient import Patient

happenings = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4), st.sampled_from([None, "a", "b"])),
        st.tuples(st.just("take"), st.integers(1, 5), st.none()),
        st.tuples(st.just("ack"), st.integers(0, 9), st.none()),
        st.tuples(st.just("nack"), st.integers(0, 9), st.none()),
        st.tuples(st.just("nack"), st.integers(0, 9), st.none()),
        st.tuples(st.just("release"), st.integers(0, 9), st.none()),
        st.tuples(st.just("wait"), st.integers(1, 5), st.none()),
        st.tuples(st.just("pass"), st.integers(1, 20_000), st.none()),
        st.tuples(st.just("hand"), st.integers(0, 1), st.none()),
    ),
    max_size=60,
)


class Story:
    """Random happenings at one mailbox, with what must hold after each of them."""

    def __init__(self, **settings: Any) -> None:
        self.mesh = Patient(lease_ms=5 * SECOND, **settings)
        self.out: list[DeliveryRow] = []
        self.acked: list[str] = []
        self.sent: list[str] = []

    def happen(self, what: str, number: int, key: str | None) -> None:
        mesh = self.mesh
        box = mesh.box(mesh.here)
        before = box.breaker.state
        attempts = {entry.sequence: entry.attempts for entry in box.entries.values()}
        self._do(what, number, key)
        granted = [lease for delivered in mesh.step.delivered or () for lease in delivered.deliveries.rows()]
        self.out += granted
        if before == "open" and not mesh.moved:
            assert not granted, "nothing goes out while it is open"
            for entry in box.entries.values():
                if what not in ("release", "pass", "nack"):
                    assert entry.attempts == attempts.get(entry.sequence, 0)
        if box.breaker.state == "half-open":
            assert len(box.breaker.probes & mesh.kernel.state.leases.keys()) <= box.settings.breaker_probes
        assert mesh.kernel.next_event_at > mesh.now, "no timer that is due stays behind"

    def _do(self, what: str, number: int, key: str | None) -> None:
        mesh = self.mesh
        self.out = [lease for lease in self.out if lease.token in mesh.kernel.state.leases]
        if what == "send":
            new = names(f"m{len(self.sent)}-", number)
            self.sent += new
            mesh.send(mesh.here, *new, key=key, ttl_ms=0)
        elif what == "take":
            mesh.take(number)
        elif what == "wait":
            mesh.wait(mesh.here, number)
        elif what == "pass":
            mesh.advance(number)
        elif what == "hand":
            mesh.do(SetBreaker(mesh.here, open=bool(number)))
        elif number < len(self.out):
            self._settle(what, self.out.pop(number))

    def _settle(self, what: str, lease: DeliveryRow) -> None:
        if what == "ack":
            if not self.mesh.ack(lease):
                self.acked.append(lease.envelope.id)
        elif what == "nack":
            self.mesh.nack(lease)
        else:
            self.mesh.release(lease)

    def recover(self) -> None:
        """The receiver is well again: everything must come out within a bounded time."""
        mesh = self.mesh
        mesh.do(SetBreaker(mesh.here, open=False))
        for _ in range(200):
            self.out += [
                lease for delivered in mesh.step.delivered or () for lease in delivered.deliveries.rows()
            ]
            for lease in self.out:
                if not mesh.ack(lease):
                    self.acked.append(lease.envelope.id)
            self.out = [
                *(lease for delivered in mesh.step.delivered or () for lease in delivered.deliveries.rows()),
                *mesh.take(9),
            ]
            mesh.advance(3 * SECOND)
        assert sorted(self.acked) == sorted(self.sent)
        assert mesh.pending(mesh.here) == []


@settings(max_examples=150, deadline=None)
@given(happenings)
def test_nothing_goes_out_while_open_and_nothing_is_lost(story: list[tuple[str, int, str | None]]) -> None:
    tale = Story(breaker_failures=2)
    for what, number, key in story:
        tale.happen(what, number, key)
    tale.recover()


@settings(max_examples=100, deadline=None)
@given(happenings, st.sampled_from([0.5, 3, 40]), st.integers(1, 3))
def test_the_same_with_a_rate_limit(
    story: list[tuple[str, int, str | None]], rate: float, burst: int
) -> None:
    tale = Story(breaker_failures=2, rate_per_s=rate, rate_burst=burst)
    for what, number, key in story:
        tale.happen(what, number, key)
    tale.recover()


@settings(max_examples=60, deadline=None)
@given(happenings)
def test_a_replay_gives_the_same_durable_state(story: list[tuple[str, int, str | None]]) -> None:
    tale = Story(breaker_failures=2, rate_per_s=3)
    for what, number, key in story:
        tale.happen(what, number, key)
    assert durable(replay(tale.mesh.records)) == durable(tale.mesh.kernel.state)
