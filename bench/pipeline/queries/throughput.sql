WITH happened AS (
    SELECT
        partition, namespace, mailbox, date_trunc('minute', accepted_at) AS minute,
        count(*) AS accepted, sum(content_bytes) AS accepted_bytes,
        0 AS delivered, 0 AS acked, 0 AS retried, 0 AS dropped, 0 AS dead
    FROM messages
    GROUP BY ALL
    UNION ALL
    SELECT
        partition, namespace, mailbox, date_trunc('minute', settled_at) AS minute, 0, 0, 0,
        count_if(final_state = 'acked'), 0, count_if(final_state = 'dropped'), count_if(final_state = 'dead')
    FROM messages
    WHERE settled_at IS NOT NULL
    GROUP BY partition, namespace, mailbox, minute
    UNION ALL
    SELECT partition, namespace, mailbox, date_trunc('minute', granted_at) AS minute, 0, 0, count(*), 0, 0, 0, 0
    FROM attempts
    GROUP BY partition, namespace, mailbox, minute
    UNION ALL
    SELECT partition, namespace, mailbox, date_trunc('minute', ended_at) AS minute, 0, 0, 0, 0, count(*), 0, 0
    FROM attempts
    WHERE outcome IN ('nack', 'lease_expired', 'reclaimed')
    GROUP BY partition, namespace, mailbox, minute
)
SELECT
    partition, namespace, mailbox, minute::DATE AS day, minute,
    sum(accepted)::BIGINT AS accepted, sum(accepted_bytes)::BIGINT AS accepted_bytes,
    sum(delivered)::BIGINT AS delivered, sum(acked)::BIGINT AS acked, sum(retried)::BIGINT AS retried,
    sum(dropped)::BIGINT AS dropped, sum(dead)::BIGINT AS dead
FROM happened
GROUP BY ALL
