-- `idempotency` is the seed's name for the keys of tasks. The ids of messages that were admitted are
-- `admissions` from here on; an older RelayMesh refuses this file by its number.
ALTER TABLE idempotency RENAME TO admissions;

DROP INDEX idx_idempotency_processed_at;
CREATE INDEX idx_admissions_processed_at ON admissions (processed_at_ms) WHERE boundary = 1;

-- One row for each task, as the kernel last showed it. NULL: it has not ended, has no result, no trace.
CREATE TABLE tasks (
    task_id         TEXT    PRIMARY KEY,
    namespace       TEXT    NOT NULL,      -- of the owner, whose address begins with it
    workflow        TEXT    NOT NULL,
    version         TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    owner           TEXT    NOT NULL,
    idempotency_key TEXT    NOT NULL,
    request         BLOB    NOT NULL,      -- digest of the request that came with the key
    trace_id        TEXT,
    created_at_ms   INTEGER NOT NULL,
    updated_at_ms   INTEGER NOT NULL,
    ended_at_ms     INTEGER,
    reason          TEXT    NOT NULL,
    result          BLOB,                  -- JSON; of a success alone
    steps_total     INTEGER NOT NULL,
    steps_ended     INTEGER NOT NULL,
    sequence        INTEGER NOT NULL,      -- of the event that submitted it
    through         INTEGER NOT NULL,      -- the sequence behind the record that ended it; 0: it has not
    cost_micros     INTEGER NOT NULL,      -- what its attempts have used: millionths of a dollar
    tokens          INTEGER NOT NULL,      -- and tokens of models
    cost_micros_max INTEGER NOT NULL,      -- its budget; 0: no limit
    tokens_max      INTEGER NOT NULL,
    waiting         TEXT    NOT NULL,      -- why it sends nothing, or that it undoes what it did
    again_of        TEXT                   -- the task whose outcomes it took over
) STRICT;

-- A key is unique among the tasks that live. A task that ended without success may be run again under its
-- key, and any key may come again after 7 days: then the earlier task keeps its row until it is purged.
CREATE UNIQUE INDEX idx_tasks_idempotency_key ON tasks (namespace, idempotency_key) WHERE ended_at_ms IS NULL;
CREATE INDEX idx_tasks_sequence ON tasks (sequence);
CREATE INDEX idx_tasks_namespace_sequence ON tasks (namespace, sequence);
CREATE INDEX idx_tasks_workflow_sequence ON tasks (workflow, sequence);
CREATE INDEX idx_tasks_status_sequence ON tasks (status, sequence);
CREATE INDEX idx_tasks_ended_at ON tasks (ended_at_ms) WHERE ended_at_ms IS NOT NULL;

-- One row for each step. NULL: not sent, not granted, not leased, not ended, no retry to come.
CREATE TABLE steps (
    step_id          TEXT    PRIMARY KEY,  -- task_id/name
    task_id          TEXT    NOT NULL,
    number            INTEGER NOT NULL,     -- its number in the task
    name             TEXT    NOT NULL,
    agent_id         TEXT    NOT NULL,     -- address of the mailbox that its message is in, or goes to
    status           TEXT    NOT NULL,
    attempt          INTEGER NOT NULL,
    failed           INTEGER NOT NULL,     -- attempts that failed
    abandoned        INTEGER NOT NULL,     -- attempts whose holder was gone
    next_retry_at_ms INTEGER,
    lease_owner      TEXT,
    lease_token      TEXT,                 -- as clients see it
    lease_epoch      INTEGER,
    sent_at_ms       INTEGER,
    granted_at_ms    INTEGER,
    updated_at_ms    INTEGER NOT NULL,
    ended_at_ms      INTEGER,
    code             TEXT    NOT NULL,
    reason           TEXT    NOT NULL,
    output           BLOB,                 -- JSON, while the task keeps it
    uncertain        INTEGER NOT NULL      -- 1: it undoes a step of which it is unknown whether it was done
) STRICT;

CREATE INDEX idx_steps_task ON steps (task_id, number);
CREATE INDEX idx_steps_status_next_retry
    ON steps (status, next_retry_at_ms) WHERE next_retry_at_ms IS NOT NULL;
CREATE INDEX idx_steps_lease_owner_updated
    ON steps (lease_owner, updated_at_ms) WHERE lease_owner IS NOT NULL;

-- What each key led to, once its task has ended: of several runs, the last.
CREATE TABLE idempotency (
    idempotency_key  TEXT    NOT NULL,
    namespace        TEXT    NOT NULL,
    status           TEXT    NOT NULL,     -- how the task ended
    result_ref       TEXT    NOT NULL,     -- the task
    result_hash      TEXT,                 -- of its result, in hex; NULL: it has none
    result_hash_algo TEXT    NOT NULL DEFAULT 'sha256',
    processed_at_ms  INTEGER NOT NULL,
    PRIMARY KEY (namespace, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_idempotency_processed_at ON idempotency (processed_at_ms);
