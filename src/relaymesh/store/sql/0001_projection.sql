-- Where the projection stands. One row, changed in the same transaction as the tables below.
CREATE TABLE projection (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    applied    INTEGER NOT NULL,           -- the next sequence to project
    swept      INTEGER NOT NULL DEFAULT -1, -- messages up to here are past history, unless touched since
    journal    TEXT                        -- which journal this is a projection of, when known
) STRICT;

INSERT INTO projection (id, applied) VALUES (1, 0);

-- One row for each message in each mailbox it entered. Content stays in the journal.
-- Clustered by accept sequence: inserts append, and later records name a message by (sequence, mailbox).
-- (namespace, mailbox, msg_id, redrive_count) is the logical key. It is not declared unique: an id may
-- come again after the dedup window, and that is another message.
CREATE TABLE messages (
    sequence      INTEGER NOT NULL,
    namespace     TEXT    NOT NULL,        -- of the mailbox, whose address begins with it
    mailbox       TEXT    NOT NULL,
    msg_id        TEXT    NOT NULL,
    redrive_count INTEGER NOT NULL DEFAULT 0,
    type          TEXT    NOT NULL,
    from_agent    TEXT    NOT NULL,
    task_id       TEXT,
    topic         TEXT,                    -- the topic it was published on; NULL when sent directly
    priority      INTEGER NOT NULL,
    state         TEXT    NOT NULL,
    attempts      INTEGER NOT NULL,        -- attempts that ended; a running one is known to the kernel alone
    meta_path     TEXT,
    payload_path  TEXT,
    created_at_ms INTEGER NOT NULL,
    due_at_ms     INTEGER NOT NULL,        -- when it may next be delivered
    updated_at_ms INTEGER NOT NULL,
    content_hash  BLOB,                    -- NULL for copies: what was published is admitted once, by topic
    to_agent      TEXT GENERATED ALWAYS AS (mailbox) VIRTUAL,
    PRIMARY KEY (sequence, mailbox)
) STRICT, WITHOUT ROWID;

-- Partial: a message that was settled before it was first written never enters it.
CREATE INDEX idx_messages_state_priority_created
    ON messages (state, priority, created_at_ms) WHERE state = 'pending';

-- Redriven entries are outside dedup, so `idempotency` cannot find them by id.
CREATE INDEX idx_messages_redriven ON messages (msg_id) WHERE redrive_count > 0;

-- A dead letter is named by (mailbox, dead_sequence). An id that came again after the dedup window
-- may die again, so (namespace, mailbox, message_id, redrive_count) is an index and not a constraint.
CREATE TABLE dead_letter_queue (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id     TEXT    NOT NULL,
    sender         TEXT    NOT NULL,
    receiver       TEXT    NOT NULL,
    content        BLOB    NOT NULL,
    failed_at      INTEGER NOT NULL,       -- ms
    retry_count    INTEGER NOT NULL,
    reason         TEXT,
    stack_trace    TEXT,
    status         TEXT    NOT NULL DEFAULT 'pending',
    namespace      TEXT    NOT NULL,
    mailbox        TEXT    NOT NULL,
    redrive_count  INTEGER NOT NULL,
    sequence       INTEGER NOT NULL,       -- of the event that accepted the message
    dead_sequence  INTEGER NOT NULL,
    accepted_at_ms INTEGER NOT NULL,
    attempts       INTEGER NOT NULL,
    code           TEXT    NOT NULL,       -- error code of the last failure, else the reason
    failures       TEXT    NOT NULL,       -- JSON: every attempt that failed
    type           TEXT    NOT NULL,
    encoding       INTEGER NOT NULL,
    UNIQUE (mailbox, dead_sequence)
) STRICT;

CREATE INDEX idx_dead_letter_queue_message
    ON dead_letter_queue (namespace, mailbox, message_id, redrive_count);

-- Every id admitted, by target: a mailbox address, or `topic:` and a topic address. Both hold the
-- namespace, so the key (namespace, target, idempotency_key) needs no third column; the id comes first
-- because ids grow with time, and a message is also looked for by its id alone.
-- Clustered by sequence, one row for each accepting event, so that expiry is a range of the table.
CREATE TABLE idempotency (
    sequence         INTEGER PRIMARY KEY,
    namespace        TEXT    NOT NULL,
    target           TEXT    NOT NULL,
    idempotency_key  TEXT    NOT NULL,
    status           TEXT    NOT NULL DEFAULT 'admitted',
    result_hash      BLOB    NOT NULL,
    result_hash_algo TEXT    NOT NULL DEFAULT 'xxh3-128',
    processed_at_ms  INTEGER NOT NULL,
    targets          INTEGER NOT NULL DEFAULT 1,
    due_at_ms        INTEGER NOT NULL,
    boundary         INTEGER NOT NULL DEFAULT 0,
    result_ref       INTEGER GENERATED ALWAYS AS (sequence) VIRTUAL,
    UNIQUE (idempotency_key, target) ON CONFLICT REPLACE
) STRICT;

-- Sequence and time grow together, so one row of each transaction is enough to find where a range of
-- time ends; the rows themselves are then a range of the table.
CREATE INDEX idx_idempotency_processed_at ON idempotency (processed_at_ms) WHERE boundary = 1;
