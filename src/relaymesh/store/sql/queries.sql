-- Named statements. Multi-row inserts and updates are completed with their VALUES by `multirow.py`.

-- name: insert_direct
INSERT INTO messages (sequence, namespace, mailbox, msg_id, type, from_agent, task_id, priority,
                      state, attempts, created_at_ms, due_at_ms, updated_at_ms, content_hash)
VALUES {rows}

-- A row of values for each series of messages that differ in nothing but sequence, id and content: first
-- sequence, count, place and width of its ids in ?1, place of its hashes in ?2, and what they share.
-- name: insert_series
INSERT INTO messages (sequence, namespace, mailbox, msg_id, type, from_agent, task_id, priority,
                      state, attempts, created_at_ms, due_at_ms, updated_at_ms, content_hash)
SELECT v.column1 + n, v.column6, v.column7, CAST(substr(?1, v.column3 + n * v.column4, v.column4) AS TEXT),
       v.column8, v.column9, v.column10, v.column11, v.column12, v.column13, v.column14, v.column15, v.column16,
       substr(?2, v.column5 + n * 16, 16)
FROM (VALUES {rows}) AS v CROSS JOIN numbers ON n < v.column2

-- name: insert_routed
INSERT INTO messages (sequence, namespace, mailbox, topic, msg_id, type, from_agent, task_id, priority,
                      state, attempts, created_at_ms, due_at_ms, updated_at_ms)
VALUES {rows}

-- name: insert_redriven
INSERT INTO messages (sequence, namespace, mailbox, redrive_count, msg_id, type, from_agent, task_id, priority,
                      state, attempts, created_at_ms, due_at_ms, updated_at_ms)
VALUES {rows}

-- The rows of `messages` that were just inserted have all that is needed: no value is bound twice.
-- name: insert_admitted
INSERT INTO admissions (sequence, namespace, target, idempotency_key, result_hash, processed_at_ms, due_at_ms,
                         sender)
SELECT sequence, namespace, mailbox, msg_id, content_hash, created_at_ms, due_at_ms, from_agent
FROM messages WHERE sequence >= ?1 AND content_hash IS NOT NULL

-- name: insert_admitted_by_topic
INSERT INTO admissions (sequence, namespace, target, targets, idempotency_key, result_hash, processed_at_ms, due_at_ms,
                         sender)
VALUES {rows}

-- name: mark_boundary
UPDATE admissions SET boundary = 1 WHERE sequence = ?1

-- Few messages have their content in a file: they are inserted without a path.
-- name: note_files
UPDATE messages SET payload_path = v.column3
FROM (VALUES {rows}) AS v
WHERE messages.sequence = v.column1 AND messages.mailbox = v.column2

-- name: settle_run
UPDATE messages SET state = ?1, attempts = attempts + ?2, updated_at_ms = ?3
WHERE mailbox = ?4 AND sequence IN carray(?5)

-- name: settle_rows
UPDATE messages SET state = v.column3, attempts = attempts + v.column4, updated_at_ms = v.column5
FROM (VALUES {rows}) AS v
WHERE messages.sequence = v.column1 AND messages.mailbox = v.column2

-- Of more than 32 failures (entry.FAILURES_MAX) the first is kept, and the last of the others.
-- name: touch_rows
UPDATE messages
SET attempts      = coalesce(v.column3, attempts + v.column4),
    due_at_ms     = coalesce(v.column5, due_at_ms),
    priority      = coalesce(v.column6, priority),
    updated_at_ms = max(updated_at_ms, v.column7),
    failures      = CASE WHEN v.column8 IS NULL THEN failures
                         WHEN failures IS NULL THEN v.column8
                         WHEN json_array_length(failures) + json_array_length(v.column8) <= 32
                         THEN substr(failures, 1, length(failures) - 1) || ',' || substr(v.column8, 2)
                         ELSE (SELECT json_group_array(json(value)) FROM (
                             SELECT value FROM json_each(
                                 substr(failures, 1, length(failures) - 1) || ',' || substr(v.column8, 2))
                             WHERE key = 0
                                OR key > json_array_length(failures) + json_array_length(v.column8) - 32
                             ORDER BY key)) END
FROM (VALUES {rows}) AS v
WHERE messages.sequence = v.column1 AND messages.mailbox = v.column2

-- name: insert_letters
INSERT INTO dead_letter_queue (
    message_id, sender, receiver, content, failed_at, retry_count, reason, stack_trace, namespace,
    mailbox, redrive_count, sequence, dead_sequence, accepted_at_ms, attempts, code, failures, type, encoding)
VALUES {rows}

-- name: settle_letters
UPDATE messages SET state = ?1, updated_at_ms = ?2
FROM dead_letter_queue AS letter
WHERE letter.mailbox = ?3 AND letter.dead_sequence IN carray(?4)
  AND messages.sequence = letter.sequence AND messages.mailbox = letter.mailbox
  AND (?1 <> 'purged' OR letter.status = 'pending')

-- name: mark_letters_redriven
UPDATE dead_letter_queue SET status = 'redriven' WHERE mailbox = ?1 AND dead_sequence IN carray(?2)

-- name: delete_letters
DELETE FROM dead_letter_queue WHERE mailbox = ?1 AND dead_sequence IN carray(?2)

-- A key belongs to the newest task: a row that still says that another one lives is wrong, and gives way.
-- name: write_tasks
INSERT OR REPLACE INTO tasks (
    task_id, namespace, workflow, version, status, owner, idempotency_key, request, trace_id, created_at_ms,
    updated_at_ms, ended_at_ms, reason, result, steps_total, steps_ended, sequence, through,
    cost_micros, tokens, cost_micros_max, tokens_max, waiting, again_of)
VALUES {rows}
ON CONFLICT (task_id) DO UPDATE SET
    status = excluded.status, updated_at_ms = excluded.updated_at_ms, ended_at_ms = excluded.ended_at_ms,
    reason = excluded.reason, result = excluded.result, steps_total = excluded.steps_total,
    steps_ended = excluded.steps_ended, through = excluded.through, cost_micros = excluded.cost_micros,
    tokens = excluded.tokens, cost_micros_max = excluded.cost_micros_max, tokens_max = excluded.tokens_max,
    waiting = excluded.waiting

-- name: write_steps
INSERT INTO steps (
    step_id, task_id, number, name, agent_id, status, attempt, failed, abandoned, next_retry_at_ms, lease_owner,
    lease_token, lease_epoch, sent_at_ms, granted_at_ms, updated_at_ms, ended_at_ms, code, reason, output,
    uncertain)
VALUES {rows}
ON CONFLICT (step_id) DO UPDATE SET
    agent_id = excluded.agent_id, status = excluded.status, attempt = excluded.attempt,
    failed = excluded.failed, abandoned = excluded.abandoned, next_retry_at_ms = excluded.next_retry_at_ms,
    lease_owner = excluded.lease_owner, lease_token = excluded.lease_token, lease_epoch = excluded.lease_epoch,
    sent_at_ms = excluded.sent_at_ms, granted_at_ms = excluded.granted_at_ms,
    updated_at_ms = excluded.updated_at_ms, ended_at_ms = excluded.ended_at_ms, code = excluded.code,
    reason = excluded.reason, output = excluded.output

-- name: write_keys
INSERT OR REPLACE INTO idempotency (
    idempotency_key, namespace, status, result_ref, result_hash, processed_at_ms)
VALUES {rows}

-- name: applied
SELECT applied FROM projection WHERE id = 1

-- name: set_applied
UPDATE projection SET applied = ?1 WHERE id = 1

-- name: journal
SELECT journal FROM projection WHERE id = 1

-- name: set_journal
UPDATE projection SET journal = ?1 WHERE id = 1

-- name: lookup
SELECT idempotency_key, sequence, processed_at_ms, result_hash, targets, due_at_ms, coalesce(sender, '')
FROM admissions
WHERE target = ?1 AND idempotency_key IN carray(?2) AND processed_at_ms > ?3

-- name: boundary_before
SELECT sequence FROM admissions
WHERE boundary = 1 AND processed_at_ms <= ?1
ORDER BY processed_at_ms DESC, sequence DESC LIMIT 1

-- name: sweep
UPDATE projection SET swept = max(swept, ?1) WHERE id = 1 RETURNING swept

-- name: purge_messages
DELETE FROM messages WHERE (sequence, mailbox) IN (
    SELECT sequence, mailbox FROM messages
    WHERE sequence <= ?1 AND state NOT IN ('pending', 'dead') AND updated_at_ms <= ?2
    LIMIT ?3)

-- The id of a message that waits, or of a dead letter, stays: the message is found by it.
-- name: purge_admissions
DELETE FROM admissions WHERE sequence IN (
    SELECT sequence FROM admissions
    WHERE sequence <= ?1 AND NOT EXISTS (
        SELECT 1 FROM messages
        WHERE messages.sequence = admissions.sequence AND messages.state IN ('pending', 'dead'))
    LIMIT ?2)

-- Where everything ends that was accepted up to a moment: the first mark of a later one.
-- name: boundary_after
SELECT sequence FROM admissions
WHERE boundary = 1 AND processed_at_ms > ?1
ORDER BY processed_at_ms, sequence LIMIT 1

-- A window is a range of sequences with about so many rows in each table.
-- name: window
SELECT min(last) FROM (
    SELECT max(sequence) AS last FROM (
        SELECT sequence FROM messages WHERE sequence > ?1 AND sequence <= ?2 ORDER BY sequence LIMIT ?3)
    UNION ALL
    SELECT max(sequence) FROM (
        SELECT sequence FROM admissions WHERE sequence > ?1 AND sequence <= ?2 ORDER BY sequence LIMIT ?3))

-- name: purge_messages_in
DELETE FROM messages
WHERE sequence > ?1 AND sequence <= ?2 AND state NOT IN ('pending', 'dead') AND updated_at_ms <= ?3
  AND mailbox = coalesce(?4, mailbox)

-- name: purge_admissions_in
DELETE FROM admissions
WHERE sequence > ?1 AND sequence <= ?2 AND processed_at_ms <= ?3 AND target = coalesce(?4, target)
  AND NOT EXISTS (
    SELECT 1 FROM messages
    WHERE messages.sequence = admissions.sequence AND messages.state IN ('pending', 'dead'))

-- Bytes are those of the texts, and about as much as the numbers of a row take.
-- name: survey_messages_in
SELECT mailbox, count(*),
    sum(100 + length(mailbox) + length(msg_id) + length(type) + length(from_agent) + coalesce(length(failures), 0)),
    min(updated_at_ms), max(updated_at_ms)
FROM messages
WHERE sequence > ?1 AND sequence <= ?2 AND state NOT IN ('pending', 'dead') AND updated_at_ms <= ?3
  AND mailbox = coalesce(?4, mailbox)
GROUP BY mailbox

-- name: survey_admissions_in
SELECT target, count(*), sum(100 + length(target) + length(idempotency_key)),
    min(processed_at_ms), max(processed_at_ms)
FROM admissions
WHERE sequence > ?1 AND sequence <= ?2 AND processed_at_ms <= ?3 AND target = coalesce(?4, target)
  AND NOT EXISTS (
    SELECT 1 FROM messages
    WHERE messages.sequence = admissions.sequence AND messages.state IN ('pending', 'dead'))
GROUP BY target

-- name: survey_tasks
SELECT count(*), sum(200 + length(task_id) + length(reason) + coalesce(length(result), 0)),
    min(ended_at_ms), max(ended_at_ms)
FROM tasks WHERE ended_at_ms <= ?1

-- name: survey_steps
SELECT count(*), sum(200 + length(step_id) + length(steps.reason) + coalesce(length(output), 0)),
    min(tasks.ended_at_ms), max(tasks.ended_at_ms)
FROM tasks CROSS JOIN steps ON steps.task_id = tasks.task_id
WHERE tasks.ended_at_ms <= ?1

-- name: survey_keys
SELECT count(*), sum(100 + length(idempotency_key) + length(namespace)), min(processed_at_ms), max(processed_at_ms)
FROM idempotency WHERE processed_at_ms <= ?1

-- Steps go first: a task is found by its end for as long as it has steps.
-- name: purge_steps
DELETE FROM steps WHERE step_id IN (
    SELECT steps.step_id FROM tasks CROSS JOIN steps ON steps.task_id = tasks.task_id
    WHERE tasks.ended_at_ms <= ?1
    LIMIT ?2)

-- name: purge_tasks
DELETE FROM tasks WHERE task_id IN (
    SELECT task_id FROM tasks
    WHERE ended_at_ms <= ?1 AND NOT EXISTS (SELECT 1 FROM steps WHERE steps.task_id = tasks.task_id)
    LIMIT ?2)

-- name: purge_keys
DELETE FROM idempotency WHERE (namespace, idempotency_key) IN (
    SELECT namespace, idempotency_key FROM idempotency WHERE processed_at_ms <= ?1 LIMIT ?2)

-- name: key
SELECT idempotency.result_ref, tasks.request, idempotency.status, idempotency.processed_at_ms, tasks.through
FROM idempotency CROSS JOIN tasks ON tasks.task_id = idempotency.result_ref
WHERE idempotency.namespace = ?1 AND idempotency.idempotency_key = ?2 AND idempotency.processed_at_ms > ?3

-- name: keys
SELECT namespace, idempotency_key FROM idempotency LIMIT ?1

-- name: results_in_files
SELECT result FROM tasks WHERE instr(result, ?1)
UNION ALL
SELECT output FROM steps WHERE instr(output, ?1)

-- name: task
SELECT {columns} FROM tasks WHERE task_id = ?1

-- name: tasks
SELECT {columns} FROM tasks WHERE sequence < ?1{conditions} ORDER BY sequence DESC LIMIT ?2

-- name: steps
SELECT {columns} FROM steps WHERE task_id = ?1 ORDER BY number

-- name: messages
SELECT {columns} FROM messages
WHERE mailbox = coalesce(?1, mailbox)
ORDER BY sequence DESC LIMIT ?2

-- name: messages_pending
SELECT {columns} FROM messages
WHERE state = 'pending' AND mailbox = coalesce(?1, mailbox)
ORDER BY state, priority, created_at_ms, sequence LIMIT ?2

-- name: messages_in_state
SELECT {columns} FROM messages
WHERE +state = ?3 AND mailbox = coalesce(?1, mailbox)
ORDER BY sequence DESC LIMIT ?2

-- name: message_entry
SELECT {columns} FROM messages WHERE sequence = ?1 AND mailbox = ?2

-- name: messages_by_id
SELECT {columns} FROM messages
WHERE sequence IN (SELECT sequence FROM admissions WHERE idempotency_key = ?1)
UNION
SELECT {columns} FROM messages WHERE msg_id = ?1 AND redrive_count > 0
ORDER BY sequence, mailbox

-- name: counts
SELECT state, count(*) FROM messages WHERE mailbox = coalesce(?1, mailbox) GROUP BY state

-- name: letters
SELECT {columns} FROM dead_letter_queue
WHERE mailbox = coalesce(?1, mailbox) AND status = coalesce(?2, status)
ORDER BY dead_sequence DESC LIMIT ?3

-- name: letters_of
SELECT {columns} FROM dead_letter_queue
WHERE namespace = ?1 AND mailbox = ?2 AND message_id = ?3
ORDER BY dead_sequence
