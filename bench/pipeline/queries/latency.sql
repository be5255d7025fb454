WITH timed AS (
    SELECT
        partition, namespace, mailbox, priority, accepted_date AS day,
        epoch_ms(first_delivered_at) - epoch_ms(due_at) AS wait,
        CASE WHEN final_state = 'acked' THEN epoch_ms(settled_at) - epoch_ms(due_at) END AS latency
    FROM messages
)
SELECT
    partition, namespace, mailbox, priority, day,
    count(latency) AS acked,
    count(wait) AS delivered,
    quantile_disc(wait, 0.50)::DOUBLE AS wait_p50_ms,
    quantile_disc(wait, 0.95)::DOUBLE AS wait_p95_ms,
    quantile_disc(wait, 0.99)::DOUBLE AS wait_p99_ms,
    quantile_disc(latency, 0.50)::DOUBLE AS latency_p50_ms,
    quantile_disc(latency, 0.95)::DOUBLE AS latency_p95_ms,
    quantile_disc(latency, 0.99)::DOUBLE AS latency_p99_ms,
    max(latency) AS latency_max_ms
FROM timed
GROUP BY ALL
