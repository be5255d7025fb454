"""What the frames of a client do. Each checks what its credential allows, as the HTTP routes do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from msgspec.structs import astuple, force_setattr

from relaymesh.errors import Closed, DirectoryError, InvalidEnvelope, LeaseLost, MeshError
from relaymesh.kernel.address import name_of, subscriber_of
from relaymesh.kernel.commands import Ack, Extend, ExtendAll, Nack, Publish, Release, Send, Settle
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.query import MailboxesOf
from relaymesh.kernel.step import Receipt
from relaymesh.server.intake import BATCH_MAX, heard
from relaymesh.server.orders import Orders, order_in, with_a_reply
from relaymesh.server.portion import portion
from relaymesh.server.security.accounts import Account
from relaymesh.server.security.principal import RESERVED_NAMES, Principal
from relaymesh.server.security.rates import MESSAGES_A_WRITE, cost_of
from relaymesh.server.security.trail import Trail
from relaymesh.server.served import Served
from relaymesh.server.ws.sessions import Session
from relaymesh.wire import frames
from relaymesh.wire.envelope import check_envelopes
from relaymesh.wire.pieces import PIECE_BYTES, check_pieces, is_light
from relaymesh.wire.types import check_queued

PLAIN_TYPE = "message"
TURN = 1_000
TURN_BYTES = 262_144
"""Messages and bytes that are checked without a pause: a few milliseconds' worth."""
NAMES_MAX = 10_000
"""Names that are remembered for one client; who uses more has them looked up again."""
RECEIVE_MAX = 10_000
RECEIVE_BYTES_MAX = 8_388_608
"""Content in one frame of deliveries. What is beyond it goes back, to come with the next."""

Groups = list[tuple[str, list[Envelope]]]


WAIT_MS_MAX = 31_536_000_000
"""The longest wait, a year; a longer one is taken for this."""


class Operations:
    """The operations of one client on the node."""

    def __init__(self, served: Served, principal: Principal, account: Account, session: Session) -> None:
        self.served = served
        self.principal = principal
        self.account = account
        self.session = session
        self._node = served.session
        self._senders: dict[str, str] = {}
        self._recipients: dict[str, str] = {}
        self._mailboxes: dict[str, str] = {}
        self.trail: Trail | None = None
        """Where a call writes audit lines of its own."""
        self.agent: str | None = None
        """The agent that the client said hello as; None if it named none."""
        self.acted: dict[int, set[str]] = {}
        """As which agents each frame under way has acted, by its number; the audit takes it from here."""

    @property
    def settles(self) -> bool:
        """Whether an agent that does not say so ends steps with a result: clients of the SDK do."""
        return self.session.subprotocol == frames.SUBPROTOCOL_MSGPACK

    async def join(self, agent: str, settles: bool | None) -> None:
        """`hello` as an agent: it joins if it never did, and is here."""
        address = self.mailbox(agent)
        if self.served.roster.registration(address) is None:
            settles = self.settles if settles is None else settles
            await self.served.roster.register(address, self.served.now, settles=settles)
        self.agent = address
        self.speaks_for(address)

    def speaks_for(self, agent: str) -> None:
        """The agent is here: it sends, receives or registered. Heartbeats of this session are its own."""
        agents = self.session.agents
        if len(agents) < NAMES_MAX:
            agents.add(agent)
        heard(self.served, agent)

    def speaks_for_all(self, agents: Iterable[str]) -> None:
        for agent in agents:
            if agent not in self.session.agents:
                self.speaks_for(agent)

    def beat(self, named: Sequence[str] = (), status: str | None = None) -> list[str]:
        """A sign of life of every agent that sends or receives here, and of the named agents.

        `status`: that of the named agents. Returns those that took steps: their leases are to be renewed.
        """
        told = {self.mailbox(name) for name in named}
        self.session.agents |= told
        for agent in self.session.agents:
            heard(self.served, agent, status if agent in told else None)
        return self.served.roster.with_taken(self.session.agents)

    @staticmethod
    def seconds(wait_ms: int | None) -> float | None:
        return None if wait_ms is None else min(max(0, wait_ms), WAIT_MS_MAX) / 1000

    # -- sending

    async def send(self, groups: Groups, wait_ms: int | None, size: int) -> list[Receipt]:
        """`size`: of the frame that they came in."""
        checked = await self._checked_groups(groups, size)
        if (order := order_in(checked)) is not None:
            obeyed = await Orders(self.served, self.principal, self.account).obey(order)
            self.settled(obeyed.ended)
            return [obeyed.receipt]
        command = Send(checked, budget=self.served.budget)
        return await self._node.execute(command, timeout=self.seconds(wait_ms))

    async def publish(
        self, topic: str, envelopes: list[Envelope], wait_ms: int | None, size: int
    ) -> list[Receipt]:
        address = self.principal.topic(topic)
        self.charge(len(envelopes), size)
        if _is_short(envelopes, size):
            self._check(envelopes, None)
        else:
            await self._check_in_turns(envelopes, None)
        command = Publish(address, envelopes, budget=self.served.budget)
        return await self._node.execute(command, timeout=self.seconds(wait_ms))

    async def reply(self, token: int, groups: Groups, size: int) -> list[Receipt]:
        """Ack and send in one step."""
        checked = await self._checked_groups(groups, size)
        if order_in(checked) is not None:
            raise with_a_reply()
        if not await self.own([token]):
            raise LeaseLost("that lease is no longer held")
        receipts = await self._node.execute(Settle(token, checked, budget=self.served.budget))
        self.settled([token])
        return receipts

    async def _checked_groups(self, groups: Groups, size: int) -> Groups:
        checked: dict[str, list[Envelope]] = {}
        self.charge(sum([len(envelopes) for _, envelopes in groups]), size)
        for to, envelopes in groups:
            address = self._recipient(to)
            if address in checked:
                raise InvalidEnvelope(f"{address} is named twice: give all of its messages in one group")
            if _is_short(envelopes, size):
                self._check(envelopes, address)
            else:
                await self._check_in_turns(envelopes, address)
            checked[address] = envelopes
        return list(checked.items())

    def charge(self, messages: int, size: int) -> None:
        """Count the messages of a frame of this size, whose bytes the guard has charged."""
        if messages > BATCH_MAX:
            raise InvalidEnvelope(f"a batch has 1 to {BATCH_MAX} messages, not {messages}")
        if messages > MESSAGES_A_WRITE:
            self.account.owe(max(0.0, cost_of(1, messages, size) - cost_of(1, 0, size)))

    def _check(self, envelopes: list[Envelope], to: str | None) -> None:
        check_envelopes(envelopes, self._node.payload_bytes_max)
        self._stamp_all(envelopes, to)

    async def _check_in_turns(self, envelopes: list[Envelope], to: str | None) -> None:
        """The same for a large batch, so that others are served meanwhile."""
        limit = self._node.payload_bytes_max
        async with self.account.long_work:
            for some in _in_turns(envelopes):
                sound = await self._checked_in_pieces(some)
                await self.served.off_loop(partial(check_envelopes, some, limit, sound=sound))
                self._stamp_all(some, to)

    async def _checked_in_pieces(self, envelopes: list[Envelope]) -> bool:
        """Check JSON in turns, where one look at all of it would take long. Whether it was checked."""
        texts = [envelope.content for envelope in envelopes if envelope.encoding == 0]
        texts += [envelope.extra for envelope in envelopes if envelope.extra is not None]
        if await self.served.off_loop(lambda: is_light(b"".join(texts))):
            return False
        for text in texts:
            for _ in check_pieces(text):
                await asyncio.sleep(0)
        return True

    def _recipient(self, to: str) -> str:
        address = self._recipients.get(to)
        if address is None:
            if len(self._recipients) >= NAMES_MAX:
                self._recipients.clear()
            address = self._recipients[to] = self.principal.address(to, "to")
        return address

    def _stamp_all(self, envelopes: list[Envelope], to: str | None) -> None:
        """In the name of the credential, and such as may go from there to `to`; None is a topic."""
        senders = self._senders
        for envelope in envelopes:
            if envelope.origin is not None:
                raise InvalidEnvelope("origin names what an edited message was: only a redrive gives it")
            sender = senders.get(envelope.sender)
            if sender is None:
                if len(senders) >= NAMES_MAX:
                    senders.clear()
                sender = senders[envelope.sender] = self._stamp(envelope.sender)
                self.speaks_for(sender)
            # Decoded just now: no other code holds it. One object for all of a name: see share_names.
            force_setattr(envelope, "sender", sender)
            if envelope.type == PLAIN_TYPE:
                force_setattr(envelope, "type", PLAIN_TYPE)
            else:
                self.served.roster.check_message(check_queued(envelope.type), sender, to)
            if envelope.reply_to is not None:
                force_setattr(envelope, "reply_to", self.principal.address(envelope.reply_to, "reply_to"))

    def _stamp(self, given: str) -> str:
        """The sender. A message without one is sent in the name of the credential's agent."""
        reserved = name_of(given) in RESERVED_NAMES and not self.principal.is_admin
        return self.principal.sender(None if reserved else given, self.agent)

    # -- receiving

    def mailbox(self, name: str) -> str:
        """The full address of a mailbox that this credential may receive from."""
        address = self._mailboxes.get(name)
        if address is None:
            self.principal.require("agent")
            address = self.principal.mailbox(name)
            self.principal.require_mailbox(address)
            if len(self._mailboxes) >= NAMES_MAX:
                self._mailboxes.clear()
            self._mailboxes[name] = address
        return address

    async def receive(
        self, mailbox: str, max: int, wait_ms: int | None, correlation_id: str | None = None
    ) -> Deliveries:
        """Deliveries of a full address. Cancelled, it gives back what was on its way."""
        session = self.session
        self.speaks_for(subscriber_of(mailbox))
        given = await self._node.receive(
            mailbox,
            min(max, RECEIVE_MAX),
            self.seconds(wait_ms),
            correlation_id,
            holder=session.holder,
            remote=True,
        )
        if given and not given.settled:
            session.give(mailbox, given.tokens)
            if len(given.tokens) > 1:  # a single one always fits
                given = await self._within_bytes(given)
            if session.is_crowded:
                await session.prune(self.served)
        return given

    async def _within_bytes(self, given: Deliveries) -> Deliveries:
        sizes = [len(envelope.content) for envelope in given.envelopes]
        if sum(sizes) <= RECEIVE_BYTES_MAX:
            return given
        count = portion(sizes, RECEIVE_BYTES_MAX)
        if count < len(given):
            beyond = given.tokens[count:]
            await self._node.execute(Release(beyond))
            self.session.take(beyond)
        return given.first(count)

    # -- settling

    async def settle(self, frame: frames.Settle) -> frames.Settled:
        """Each token has its own result: a stale one does not affect the others. A bad value refuses all."""
        self.principal.require("agent")
        nacks = [Nack(*astuple(item)) for item in frame.nacks]
        for token, ms in frame.extends:
            Extend(token, ms)
        ended = [*frame.acks, *frame.drops, *frame.releases, *[nack.token for nack in nacks]]
        named = [*ended, *[token for token, _ in frame.extends]] if frame.extends else ended
        granted = self.session.granted
        mailboxes = set(map(granted.get, named))
        self.acted[frame.ref] = {subscriber_of(mailbox) for mailbox in mailboxes if mailbox is not None}
        refused: set[int] = set()
        if None in mailboxes:
            foreign = [token for token in named if token not in granted]
            refused = set(foreign) - await self.own(foreign)
        answer = frames.Settled(frame.ref)
        for tokens, drop in ((frame.acks, False), (frame.drops, True)):
            usable = tokens
            if refused:
                answer.stale += [token for token in tokens if token in refused]
                usable = [token for token in tokens if token not in refused]
            if usable:
                answer.stale += await self._node.execute(Ack(usable, drop), durable=frame.durable)
        if frame.releases:
            await self._node.execute(Release([token for token in frame.releases if token not in refused]))
        if frame.nacks:
            answer.states = await asyncio.gather(*[self._nack(nack, refused) for nack in nacks])
        if frame.extends:
            answer.deadlines = await self._extend(frame.extends, refused)
        self.settled(ended)
        return answer

    async def own(self, tokens: Sequence[int]) -> set[int]:
        """Those whose mailbox this credential may receive from; the others count as stale."""
        mailboxes = await self._node.execute(MailboxesOf(tokens))
        return {token for token, mailbox in mailboxes.items() if self.principal.may_receive(mailbox)}

    async def _nack(self, nack: Nack, refused: set[int]) -> str | None:
        if nack.token in refused:
            return None
        try:
            return await self._node.execute(nack)
        except LeaseLost:
            return None

    async def _extend(self, extends: list[tuple[int, int]], refused: set[int]) -> list[int | None]:
        usable = [each for each in extends if each[0] not in refused]
        deadlines = dict(
            zip([token for token, _ in usable], await self._node.execute(ExtendAll(usable)), strict=True)
        )
        return [deadlines.get(token) for token, _ in extends]

    def settled(self, tokens: list[int]) -> None:
        """The deliveries are settled: their credit is free again."""
        if tokens:
            self.session.take(tokens)
            connection = self.session.connection
            if connection is not None:
                connection.settled(tokens)


def _is_short(envelopes: list[Envelope], size: int) -> bool:
    """Whether a batch is checked without a pause. `size`: of the frame that it came in."""
    return len(envelopes) <= TURN and size <= PIECE_BYTES


def _in_turns(envelopes: list[Envelope]) -> Iterator[list[Envelope]]:
    """Parts of a batch that are small enough for one turn; a large message is a part by itself."""
    part: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        length = len(envelope.content)
        if part and (len(part) >= TURN or size + length > TURN_BYTES):
            yield part
            part, size = [], 0
        part.append(envelope)
        size += length
    if part:
        yield part


def problem_of(ref: int | None, error: MeshError) -> frames.Problem:
    """An error as a frame."""
    after = getattr(error, "retry_after", None)
    return frames.Problem(
        error.code,
        error.message,
        error.hint,
        error.retryable or isinstance(error, (Closed, DirectoryError)),
        ref,
        None if after is None else round(after * 1000),
        getattr(error, "authenticated", False),
    )
