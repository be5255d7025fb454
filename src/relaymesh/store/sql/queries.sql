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
INSERT INTO idempotency (sequence, namespace, target, idempotency_key, result_hash, processed_at_ms, due_at_ms,
                         sender)
SELECT sequence, namespace, mailbox, msg_id, content_hash, created_at_ms, due_at_ms, from_agent
FROM messages WHERE sequence >= ?1 AND content_hash IS NOT NULL

-- name: insert_admitted_by_topic
INSERT INTO idempotency (sequence, namespace, target, targets, idempotency_key, result_hash, processed_at_ms, due_at_ms,
                         sender)
VALUES {rows}

-- name: mark_boundary
UPDATE idempotency SET boundary = 1 WHERE sequence = ?1

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
FROM idempotency
WHERE target = ?1 AND idempotency_key IN carray(?2) AND processed_at_ms > ?3

-- name: boundary_before
SELECT sequence FROM idempotency
WHERE boundary = 1 AND processed_at_ms <= ?1
ORDER BY processed_at_ms DESC, sequence DESC LIMIT 1

-- name: sweep
UPDATE projection SET swept = max(swept, ?1) WHERE id = 1 RETURNING swept

-- name: purge_messages
DELETE FROM messages WHERE (sequence, mailbox) IN (
    SELECT sequence, mailbox FROM messages
    WHERE sequence <= ?1 AND state NOT IN ('pending', 'dead') AND updated_at_ms <= ?2
    LIMIT ?3)

-- name: purge_idempotency
DELETE FROM idempotency WHERE sequence IN (
    SELECT sequence FROM idempotency WHERE sequence <= ?1 LIMIT ?2)

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
WHERE sequence IN (SELECT sequence FROM idempotency WHERE idempotency_key = ?1)
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
