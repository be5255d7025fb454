"""Mail about tasks waits for room, as any mail does."""

from __future__ import annotations

from relaymesh.kernel.commands import PurgeDeadLetters
from relaymesh.kernel.query import OwedNotices
from relaymesh.kernel.tasks.commands import SendNotice
from tests.kernel.tasks.office import AGENT, Office, plan, step

INBOX = "default/inbox"


def test_mail_is_not_sent_to_a_mailbox_whose_dead_letters_are_full() -> None:
    office = Office()
    office.agent("worker")
    office.agent("inbox", dead_letters_max=1)
    office.submit(plan(step("a", mailbox=INBOX)), "t1")
    office.dies(office.take(mailbox=INBOX)["a"])
    office.submit(plan(step("a")), "t2", reply_to=INBOX)
    office.finish(office.take(mailbox=AGENT)["a"])
    notice = SendNotice("t2", "result", "n1", b"{}")
    assert office.do(notice).result is False
    assert [owed.task for owed in office.kernel.look(OwedNotices())] == ["t2"]
    office.do(PurgeDeadLetters([(INBOX, letter.dead_sequence) for letter in office.letters]))
    assert office.do(notice).result is True
    assert not office.kernel.look(OwedNotices())
