WITH moves AS (
    SELECT partition, namespace, mailbox, date_trunc('second', accepted_at) AS second, 1 AS i, 0 AS c FROM messages
    UNION ALL
    SELECT partition, namespace, mailbox, date_trunc('second', settled_at), 0, 1
    FROM messages
    WHERE settled_at IS NOT NULL
),
flows AS (
    SELECT partition, namespace, mailbox, second, sum(i) AS arrivals, sum(c) AS completions
    FROM moves
    GROUP BY ALL
),
summed AS (
    SELECT *, sum(arrivals - completions) OVER (PARTITION BY partition, mailbox ORDER BY second) AS net FROM flows
),
seconds AS (
    SELECT *, net - least(min(net) OVER (PARTITION BY partition, mailbox ORDER BY second), 0) AS backlog
    FROM summed
),
minutes AS (
    SELECT
        partition, namespace, mailbox, date_trunc('minute', second) AS minute,
        sum(arrivals)::BIGINT AS arrivals, sum(completions)::BIGINT AS completions,
        arg_max(backlog, second)::BIGINT AS backlog, max(backlog)::BIGINT AS backlog_peak
    FROM seconds
    GROUP BY ALL
)
SELECT
    m.*, m.minute::DATE AS day, a.capacity,
    CASE WHEN a.capacity > 0 THEN m.backlog_peak / a.capacity END AS used_share
FROM minutes m
LEFT JOIN agents a ON a.partition = m.partition AND a.address = m.mailbox
