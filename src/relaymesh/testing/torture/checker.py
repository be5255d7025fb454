"""The checker: reads the ledgers of a torture and says what was broken. Shares no code with the product.

    python checker.py LEDGERS       one line of JSON; exit code 1 when a rule was broken

Every thread of every worker writes a ledger of its own, `RUN.THREAD`, one line per fact, so that a kill can
only cut the last line of a file. Nothing is concluded from the order of lines in different files: only from
tokens, sequences and the machine's clocks.

    I id mailboxes key n digest delay_ms max_retries fate size elapsed wall    about to send, the first time
    A id                                                                       about to send it once more
    R id sequence duplicate targets                                            receipted
    X id                                                                       refused: surely not accepted
    H id mailbox sequence attempt token digest lease_ms awake elapsed wall     delivered; lease 0: renewed
    T id mailbox token reply                                                   about to settle it as done
    S id mailbox token outcome begun                                           the answer to a settle
    L id mailbox reason attempts digest                                        a dead letter, at the end
    Z mailbox accepted acked dropped dead pending                              a mailbox's books, at the end
    B awake                                                                    a server has started
    F words                                                                    what no worker should see

Times are milliseconds: `awake` does not count while the machine sleeps, `elapsed` does, `wall` may jump.

What a client can know of a lane's order: a lane has one sender, who sends the next message only when the one
before is receipted or refused, or (outcome unknown, after a kill) has been sent again. So the order of its
numbers is the order of acceptance.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

RULES = {
    "lost": "receipted and neither delivered to its end nor a dead letter",
    "phantom": "delivered or dead, and never sent, or not as it was sent",
    "disorder": "a lane out of the order of acceptance",
    "early": "delivered before its time",
    "token": "a lease token or sequence given twice, or going back",
    "stale": "a settle accepted after its lease had ended",
    "attempts": "tried more often than allowed, or given up too early",
    "twice": "one id accepted twice",
    "came_back": "delivered again after its settle was answered",
    "balance": "accepted is not acked + dropped + dead, or not what was sent",
    "errors": "an error that a worker should never see",
}
EARLY_SLACK_MS = 5
"""Clocks are read in whole milliseconds, and a restart anchors the mesh's time anew."""
STALE_SLACK_MS = 2
DONE = ("acked", "answered")
REFUSED = ("lost", "refused")
SURE_TO_FAIL = ("poison", "reject")
SHOWN_MAX = 50
"""Violations of one rule that are told in words; all are counted."""

Token = tuple[int, ...]
Place = tuple[str, str]
"""A mailbox and a message id: what is delivered, settled or dead."""


class Intent(NamedTuple):
    mailboxes: tuple[str, ...]
    key: str
    number: int
    digest: str
    delay_ms: int
    max_retries: int
    fate: str
    elapsed: int
    wall: int


class Receipt(NamedTuple):
    sequence: int
    duplicate: bool
    targets: int


class Delivery(NamedTuple):
    run: int
    sequence: int
    attempt: int
    token: Token
    digest: str
    lease_ms: int
    awake: int
    elapsed: int
    wall: int


class Settled(NamedTuple):
    outcome: str
    begun: int


class Letter(NamedTuple):
    reason: str
    attempts: int
    digest: str


class Account(NamedTuple):
    accepted: int
    acked: int
    dropped: int
    dead: int
    pending: int


@dataclass
class Standing:
    """What earlier rounds on the same directory leave behind for the next one to be judged by."""

    token: Token = ()
    sequence: int = 0
    accounts: dict[str, Account] = field(default_factory=dict)


@dataclass
class Books:
    """What all runs of a round have written down."""

    intents: dict[str, list[Intent]] = field(default_factory=lambda: defaultdict(list))
    again: Counter[str] = field(default_factory=Counter)
    receipts: dict[str, list[Receipt]] = field(default_factory=lambda: defaultdict(list))
    refused: set[str] = field(default_factory=set)
    deliveries: dict[Place, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    done: dict[tuple[Place, Token], str] = field(default_factory=dict)
    """What was about to be settled as done, and the id of the reply that went with it, or `-`."""
    settled: dict[tuple[Place, Token], Settled] = field(default_factory=dict)
    letters: dict[Place, Letter] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    began: dict[int, int] = field(default_factory=dict)
    """When each run first meant to send: it was there before, and may have been given deliveries by then."""

    def read(self, run: int, lines: Iterable[str]) -> None:
        for line in lines:
            if not line.endswith("\n"):
                break  # the kill met the last write
            kind, *words = line.split()
            if kind == "F":
                self.faults.append(f"run {run}: {' '.join(words)}")
            elif kind == "B":
                self.starts.append(int(words[0]))
            elif kind == "Z":
                self.accounts[words[0]] = Account(*map(int, words[1:]))
            else:
                self._note(kind, run, words[0], words[1:])

    def _note(self, kind: str, run: int, id: str, words: list[str]) -> None:
        if kind == "H":
            self.deliveries[words[0], id].append(_delivery(run, words[1:]))
        elif kind == "I":
            intent = _intent(words)
            self.intents[id].append(intent)
            self.began[run] = min(self.began.get(run, intent.elapsed), intent.elapsed)
        elif kind == "A":
            self.again[id] += 1
        elif kind == "R":
            self.receipts[id].append(Receipt(int(words[0]), words[1] == "1", int(words[2])))
        elif kind == "X":
            self.refused.add(id)
        elif kind == "T":
            self.done[(words[0], id), _token(words[1])] = words[2]
        elif kind == "S":
            self.settled[(words[0], id), _token(words[1])] = Settled(words[2], int(words[3]))
        elif kind == "L":
            self.letters[words[0], id] = Letter(words[1], int(words[2]), words[3])
        else:
            raise ValueError(f"run {run}: no line begins with {kind!r}")

    def sort(self) -> None:
        """By token, which is the order in which the mesh handed them out."""
        for deliveries in self.deliveries.values():
            deliveries.sort(key=lambda each: each.token)


def _token(text: str) -> Token:
    return tuple(map(int, text.split(".")))


def _intent(words: list[str]) -> Intent:
    mailboxes, key, number, digest, delay, retries, fate, _size, elapsed, wall = words
    return Intent(
        tuple(mailboxes.split(",")), key, int(number), digest,
        int(delay), int(retries), fate, int(elapsed), int(wall),
    )  # fmt: skip


def _delivery(run: int, words: list[str]) -> Delivery:
    sequence, attempt, token, digest, lease, awake, elapsed, wall = words
    return Delivery(
        run, int(sequence), int(attempt), _token(token), digest,
        int(lease), int(awake), int(elapsed), int(wall),
    )  # fmt: skip


def read_books(folder: Path) -> Books:
    """Every ledger of the folder."""
    books = Books()
    for file in sorted(folder.glob("*.*")):
        run, _, thread = file.name.partition(".")
        if run.isdecimal() and thread.isdecimal():
            with file.open(encoding="ascii", newline="\n") as lines:
                books.read(int(run), lines)
    books.sort()
    return books


@dataclass
class Findings:
    """How often each rule was broken, the first cases in words, and how much there was to judge."""

    broken: Counter[str] = field(default_factory=Counter)
    words: list[str] = field(default_factory=list)
    messages: int = 0
    deliveries: int = 0
    duplicates: int = 0
    """Deliveries of something delivered before: allowed (at least once), and counted."""
    resent: int = 0
    refused: int = 0
    stale_refused: int = 0
    dead: int = 0

    def add(self, rule: str, cases: Iterable[str]) -> None:
        for case in cases:
            self.broken[rule] += 1
            if self.broken[rule] <= SHOWN_MAX:
                self.words.append(f"{rule}: {case}")

    def __iadd__(self, other: Findings) -> Findings:
        self.broken += other.broken
        self.words += other.words
        for name in ("messages", "deliveries", "duplicates", "resent", "refused", "stale_refused", "dead"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


def judge(books: Books, standing: Standing | None = None) -> Findings:
    """Every promise that was not kept. `standing` is brought up to date for the next round."""
    standing = standing or Standing()
    books.sort()
    found = Findings(
        messages=len(books.receipts),
        deliveries=sum(map(len, books.deliveries.values())),
        resent=books.again.total(),
        refused=len(books.refused),
        stale_refused=sum(outcome == "lost" for _, outcome, _, _ in _late(books)),
        dead=len(books.letters),
    )
    found.duplicates = found.deliveries - len(books.deliveries)
    for rule, cases in (
        ("lost", _lost(books)),
        ("phantom", _phantom(books)),
        ("disorder", _disorder(books)),
        ("early", _early(books)),
        ("token", _tokens(books, standing)),
        ("stale", _stale(books)),
        ("attempts", _attempts(books)),
        ("twice", _twice(books)),
        ("came_back", _came_back(books)),
        ("balance", _balance(books, standing)),
        ("errors", iter(books.faults)),
    ):
        found.add(rule, cases)
    bring_up_to_date(standing, books)
    return found


def bring_up_to_date(standing: Standing, books: Books) -> None:
    """What the next round is judged by."""
    tokens = [each[-1].token for each in books.deliveries.values()]
    sequences = [receipt.sequence for each in books.receipts.values() for receipt in each]
    standing.token = max([standing.token, *tokens])
    standing.sequence = max([standing.sequence, *sequences])
    standing.accounts.update(books.accounts)


# -- the rules


def _lost(books: Books) -> Iterator[str]:
    """Each target of a receipted message, and whatever was delivered at all, came to an end."""
    if not books.accounts:
        return  # nothing was drained, so nothing had to end: see `_balance`
    places = dict.fromkeys(books.deliveries)
    for id, receipts in books.receipts.items():
        if id not in books.intents:
            yield f"{id} is receipted and was never sent"
            continue
        mailboxes = books.intents[id][0].mailboxes
        places.update(dict.fromkeys((mailbox, id) for mailbox in mailboxes))
        if receipts[0].targets != len(mailboxes):
            yield f"{id} reached {receipts[0].targets} of {len(mailboxes)} mailboxes"
    for place in places:
        end = _ending(books, place)
        if end:
            yield f"{place[1]} in {place[0]} {end}"


def _ending(books: Books, place: Place) -> str:
    """What is wrong with the way it ended, or nothing."""
    if place in books.letters:
        return ""
    deliveries = books.deliveries.get(place)
    if not deliveries:
        return "was never delivered"
    last = (place, deliveries[-1].token)
    reply = books.done.get(last)
    answer = books.settled.get(last)
    if reply is None or (answer is not None and answer.outcome not in DONE):
        return f"vanished after attempt {deliveries[-1].attempt}, unsettled"
    if answer is None and reply != "-" and not _arrived(books, reply):
        return f"was settled without its reply {reply}"
    return ""


def _arrived(books: Books, id: str) -> bool:
    return any(
        (mailbox, id) in books.deliveries or (mailbox, id) in books.letters
        for mailbox in books.intents[id][0].mailboxes
    )


def _phantom(books: Books) -> Iterator[str]:
    """Nothing is delivered, or dead, that was not sent there, and exactly so."""
    seen = [(place, each.digest) for place, found in books.deliveries.items() for each in found]
    seen += [(place, letter.digest) for place, letter in books.letters.items()]
    for (mailbox, id), digest in seen:
        intents = books.intents.get(id, ())
        if not any(mailbox in intent.mailboxes for intent in intents):
            yield f"{id} in {mailbox} was never sent"
        elif id in books.refused and id not in books.receipts:
            yield f"{id} in {mailbox} was refused when it was sent"
        elif not any(digest == intent.digest for intent in intents):
            yield f"{id} in {mailbox} is not what was sent: content or key changed"


def _disorder(books: Books) -> Iterator[str]:
    """First deliveries, and sequences, follow the numbers of a lane; nothing passes what comes again."""
    lanes: dict[Place, list[tuple[Token, int]]] = defaultdict(list)
    for (mailbox, id), deliveries in books.deliveries.items():
        intents = books.intents.get(id)
        if intents and intents[0].key != "-":
            lanes[mailbox, intents[0].key] += [(each.token, intents[0].number) for each in deliveries]
    for (mailbox, key), grants in lanes.items():
        yield from (f"lane {key} of {mailbox}: {case}" for case in _lane_disorder(sorted(grants)))
    yield from _sequence_disorder(books)


def _lane_disorder(grants: list[tuple[Token, int]]) -> Iterator[str]:
    """A number granted at t, when a lower one is granted again later, must have followed that one at once.

    The lower one was unsettled at t, so it was out in the same run of the lane, in front: its last grant
    before t is newer than the previous grant of the higher one.
    """
    last_of = {number: place for place, (_, number) in enumerate(grants)}
    given: dict[int, int] = {}
    highest = -1
    open_numbers: set[int] = set()
    for place, (_, number) in enumerate(grants):
        if number not in given and number < highest:
            yield f"{number} was first delivered after {highest}"
        before = given.get(number, -1)
        for lower in open_numbers:
            if lower < number and given[lower] < before:
                yield f"{number} was delivered again before {lower}, which was still to come again"
        highest = max(highest, number)
        given[number] = place
        if last_of[number] > place:
            open_numbers.add(number)
        else:
            open_numbers.discard(number)


def _sequence_disorder(books: Books) -> Iterator[str]:
    lanes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for id, receipts in books.receipts.items():
        for intent in books.intents.get(id, ())[:1]:
            if intent.key != "-":
                lanes[intent.key].append((intent.number, receipts[0].sequence))
    for key, numbered in lanes.items():
        numbered.sort()
        for (number, sequence), (later, after) in pairwise(numbered):
            if after < sequence:
                yield f"lane {key}: {later} was accepted before {number}, which was receipted first"


def _early(books: Books) -> Iterator[str]:
    """Early only if both clocks say so: a wall clock that is set moves what is due after a restart.

    Of an answer that two holders of one question meant to give, the first may be the one that was sent.
    """
    for (mailbox, id), deliveries in books.deliveries.items():
        intents = books.intents.get(id, ())
        if not intents:
            continue
        meant, meant_wall = min(each.elapsed for each in intents), min(each.wall for each in intents)
        delay_ms = intents[0].delay_ms
        for each in deliveries:
            waited = max(each.elapsed - meant, each.wall - meant_wall)
            if waited < delay_ms - EARLY_SLACK_MS:
                yield f"{id} in {mailbox} came after {waited} ms, not {delay_ms} ms"


def _tokens(books: Books, standing: Standing) -> Iterator[str]:
    tokens = Counter(each.token for found in books.deliveries.values() for each in found)
    yield from (
        f"token {_shown(token)} was given {count} times" for token, count in tokens.items() if count > 1
    )
    yield from _tokens_going_back(books, standing)
    owners: dict[int, str] = {}
    for id, receipts in books.receipts.items():
        sequence = receipts[0].sequence
        if owners.setdefault(sequence, id) != id:
            yield f"sequence {sequence} is both {owners[sequence]} and {id}"
        if sequence <= standing.sequence:
            yield f"{id} was accepted under sequence {sequence}, after {standing.sequence} in an earlier one"


def _tokens_going_back(books: Books, standing: Standing) -> Iterator[str]:
    """A run is compared with those that were over when it began: the others were given beside it."""
    runs: dict[int, list[Delivery]] = defaultdict(list)
    for found in books.deliveries.values():
        for each in found:
            runs[each.run].append(each)
    over = [(max(x.elapsed for x in given), max(x.token for x in given)) for given in runs.values()]
    for run in sorted(runs):
        lowest = min(each.token for each in runs[run])
        seen = min(each.elapsed for each in runs[run])
        began = min(seen, books.began.get(run, seen))
        highest = max([standing.token, *(token for ended, token in over if ended < began)])
        if lowest <= highest:
            yield f"run {run} was given token {_shown(lowest)}, after {_shown(highest)} in an earlier run"


def _shown(token: Token) -> str:
    return ".".join(map(str, token))


def _stale(books: Books) -> Iterator[str]:
    for (mailbox, id), outcome, held, lease in _late(books):
        if outcome not in REFUSED:
            yield f"{id} in {mailbox} was {outcome} after {held} ms of a lease of {lease} ms"


def _late(books: Books) -> Iterator[tuple[Place, str, int, int]]:
    """Settles begun when the lease had surely ended: it began before the delivery was seen.

    The leases of a server's clients begin anew with each of its starts.
    """
    for place, deliveries in books.deliveries.items():
        for each in deliveries:
            answer = books.settled.get((place, each.token))
            if answer is None or not each.lease_ms:
                continue
            since = max([each.awake, *(start for start in books.starts if start <= answer.begun)])
            held = answer.begun - since
            if held > each.lease_ms + STALE_SLACK_MS:
                yield place, answer.outcome, held, each.lease_ms


def _attempts(books: Books) -> Iterator[str]:
    for place, deliveries in books.deliveries.items():
        mailbox, id = place
        limit = _limit(books, id)
        least = 1
        for each in deliveries:
            if each.attempt > limit:
                yield f"{id} in {mailbox} had attempt {each.attempt} of at most {limit}"
            if each.attempt < least:
                yield f"{id} in {mailbox} had attempt {each.attempt} where {least} was due: not counted"
            answer = books.settled.get((place, each.token))
            burned = answer is not None and answer.outcome == "retrying"
            least = max(least, each.attempt + burned)
    for (mailbox, id), letter in books.letters.items():
        limit = _limit(books, id)
        intents = books.intents.get(id, ())
        if letter.attempts > limit:
            yield f"{id} in {mailbox} died after {letter.attempts} attempts of at most {limit}"
        elif letter.reason == "retries_exhausted" and letter.attempts < limit:
            yield f"{id} in {mailbox} was given up after {letter.attempts} attempts of {limit}"
        if intents and not intents[0].fate.startswith(SURE_TO_FAIL):
            yield f"{id} in {mailbox} is dead ({letter.reason}), though nothing about it fails for good"


def _limit(books: Books, id: str) -> int:
    intents = books.intents.get(id)
    return intents[0].max_retries + 1 if intents else sys.maxsize


def _twice(books: Books) -> Iterator[str]:
    """One id has one sequence, in every receipt and every delivery, and is new once."""
    sequences: dict[str, set[int]] = defaultdict(set)
    for id, receipts in books.receipts.items():
        sequences[id].update(receipt.sequence for receipt in receipts)
        if sum(not receipt.duplicate for receipt in receipts) > 1:
            yield f"{id} was receipted as new {len(receipts)} times"
    for (_, id), deliveries in books.deliveries.items():
        sequences[id].update(each.sequence for each in deliveries)
    for id, seen in sequences.items():
        if len(seen) > 1:
            yield f"{id} is there under the sequences {', '.join(map(str, sorted(seen)))}"


def _came_back(books: Books) -> Iterator[str]:
    """A kill takes nothing that was written: an answered ack is for good. So is an answer that arrived."""
    for place, deliveries in books.deliveries.items():
        ends = [each for each in deliveries if _is_done(books, place, each.token)]
        if ends and deliveries[-1].token > ends[0].token:
            yield f"{place[1]} in {place[0]} was settled under {_shown(ends[0].token)} and came again"


def _is_done(books: Books, place: Place, token: Token) -> bool:
    answer = books.settled.get((place, token))
    if answer is not None:
        return answer.outcome in DONE
    reply = books.done.get((place, token), "-")
    if reply == "-":
        return False
    # A reply names the token it was sent under; its arrival proves that the settle with it took place.
    digests = {each.digest for each in books.intents[reply] if each.fate == f"reply-{_shown(token)}"}
    arrived = (
        each.digest
        for box in books.intents[reply][0].mailboxes
        for each in books.deliveries.get((box, reply), ())
    )
    return any(digest in digests for digest in arrived)


def _balance(books: Books, standing: Standing) -> Iterator[str]:
    if not books.accounts:
        yield "nothing was drained at the end: what is pending is not known"
    receipted: Counter[str] = Counter()
    intended: Counter[str] = Counter()
    for id, intents in books.intents.items():
        intended.update(intents[0].mailboxes)
        if id in books.receipts:
            receipted.update(intents[0].mailboxes)
    for mailbox, account in books.accounts.items():
        accepted = account.accepted - standing.accounts.get(mailbox, Account(0, 0, 0, 0, 0)).accepted
        if account.accepted != account.acked + account.dropped + account.dead + account.pending:
            yield f"{mailbox}: {account}"
        if account.pending:
            yield f"{mailbox}: {account.pending} are pending after the drain"
        if not receipted[mailbox] <= accepted <= intended[mailbox]:
            yield (
                f"{mailbox}: accepted {accepted}, where {receipted[mailbox]} were receipted"
                f" and {intended[mailbox]} sent"
            )


def main() -> int:
    found = judge(read_books(Path(sys.argv[1])))
    sys.stdout.write(json.dumps({**found.__dict__, "broken": dict(found.broken)}) + "\n")
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
