-- Who sent it: the same id from another sender is a conflict. NULL for what was admitted before this column
-- was there: that is compared by content alone.
ALTER TABLE idempotency ADD COLUMN sender TEXT;
