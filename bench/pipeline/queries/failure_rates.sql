-- The contracts of this bench's mailboxes are the default: retries by class stand in the query.
WITH counted AS (FROM attempts WHERE burned AND outcome <> 'leased'),
totals AS (SELECT partition, namespace, mailbox, count(*) AS attempts FROM counted GROUP BY ALL),
settled AS (FROM messages WHERE final_state <> 'pending' AND attempts > 0),
tried AS (SELECT partition, namespace, mailbox, count(*) AS messages FROM settled GROUP BY ALL),
failures AS (
    SELECT
        partition, namespace, mailbox, coalesce(code, 'unknown') AS code, count(*) AS failures,
        count_if(outcome IN ('nack', 'lease_expired', 'reclaimed')) AS retried
    FROM counted
    WHERE failed
    GROUP BY ALL
),
losses AS (
    SELECT
        partition, namespace, mailbox, code,
        count_if(final_state = 'dead') AS dead, count_if(final_state = 'dropped') AS dropped
    FROM settled
    WHERE final_state IN ('dead', 'dropped') AND code IS NOT NULL AND code NOT IN ('dropped', 'unsubscribed')
    GROUP BY ALL
),
classes AS (
    SELECT
        partition, namespace, mailbox, code,
        coalesce(failures, 0) AS failures, coalesce(retried, 0) AS retried,
        coalesce(dead, 0) AS dead, coalesce(dropped, 0) AS dropped,
        CASE code
            WHEN 'timeout' THEN 3 WHEN 'rate_limited' THEN 5 WHEN 'invalid' THEN 0 WHEN 'conflict' THEN 0
            WHEN 'duplicate' THEN 0 WHEN 'fatal' THEN 0 ELSE 3
        END AS retries_allowed
    FROM failures
    FULL JOIN losses USING (partition, namespace, mailbox, code)
),
everything AS (
    SELECT
        partition, namespace, mailbox, '*' AS code, sum(failures) AS failures, sum(retried) AS retried,
        sum(dead) AS dead, sum(dropped) AS dropped, max(retries_allowed) AS retries_allowed
    FROM classes
    GROUP BY ALL
)
SELECT
    r.partition, r.namespace, r.mailbox, r.code, t.attempts, r.failures::BIGINT AS failures,
    CASE WHEN e.failures > 0 THEN r.failures / e.failures END AS share_of_failures,
    r.retried::BIGINT AS retried, s.messages, r.dead::BIGINT AS dead, r.dropped::BIGINT AS dropped,
    CASE WHEN t.attempts > 0 THEN r.retried / t.attempts END AS retry_rate,
    CASE WHEN t.attempts > 0 THEN r.failures / t.attempts END AS p_fail,
    r.retries_allowed,
    CASE WHEN t.attempts > 0 THEN pow(r.failures / t.attempts, r.retries_allowed + 1) END AS p_drop_predicted,
    CASE WHEN s.messages > 0 THEN (r.dead + r.dropped) / s.messages END AS p_drop_observed
FROM (FROM classes UNION ALL BY NAME FROM everything) r
LEFT JOIN totals t USING (partition, namespace, mailbox)
LEFT JOIN tried s USING (partition, namespace, mailbox)
JOIN everything e USING (partition, namespace, mailbox)
