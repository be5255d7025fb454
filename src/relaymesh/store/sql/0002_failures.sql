-- What failed on the way of a message, also of one that was acked in the end: JSON, as in dead_letter_queue.
-- NULL where nothing did, and for what failed before this column was there: a rebuild finds that too.
ALTER TABLE messages ADD COLUMN failures TEXT;
