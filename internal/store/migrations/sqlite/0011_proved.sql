-- Every row that decides says which entry of the log changed it last, and has a MAC over itself and that entry's index under state.key. Rows
-- from before have none until an entry "state.adopt" takes them over.
ALTER TABLE sessions     ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE sessions     ADD COLUMN mac BLOB;
ALTER TABLE tokens       ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE tokens       ADD COLUMN mac BLOB;
ALTER TABLE pins         ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE pins         ADD COLUMN mac BLOB;
ALTER TABLE switches     ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE switches     ADD COLUMN mac BLOB;
ALTER TABLE declarations ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE declarations ADD COLUMN mac BLOB;
ALTER TABLE approvals    ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE approvals    ADD COLUMN mac BLOB;
ALTER TABLE audit_spent  ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE audit_spent  ADD COLUMN mac BLOB;
ALTER TABLE used         ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE used         ADD COLUMN mac BLOB;
ALTER TABLE quarantines  ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE quarantines  ADD COLUMN mac BLOB;
ALTER TABLE quarantine_counts ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE quarantine_counts ADD COLUMN mac BLOB;
ALTER TABLE drills       ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE drills       ADD COLUMN mac BLOB;
ALTER TABLE evidence     ADD COLUMN entry INTEGER NOT NULL DEFAULT -1;
ALTER TABLE evidence     ADD COLUMN mac BLOB; -- over the row before it in the session, too

-- What these two forbid stays forbidden; a row's proof may be written anew.
DROP TRIGGER tokens_revoked;
CREATE TRIGGER tokens_revoked BEFORE UPDATE OF id, hash, kind, subject, agent, roles, created, expires, revoked ON tokens WHEN OLD.revoked IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a revoked token stays revoked'); END;
DROP TRIGGER audit_spent_update;
CREATE TRIGGER audit_spent_update BEFORE UPDATE OF id, call_id ON audit_spent
BEGIN SELECT RAISE(ABORT, 'audit_spent is append-only'); END;

-- The digest of all rows that decide, as of a size of the log, and the one that was signed before it. One row.
CREATE TABLE state_proof (
	one        INTEGER PRIMARY KEY CHECK (one = 1),
	size       INTEGER NOT NULL CHECK (size >= 0),
	digest     TEXT    NOT NULL,
	was_size   INTEGER NOT NULL CHECK (was_size >= -1), -- -1: no checkpoint was signed before
	was_digest TEXT    NOT NULL, -- "": the checkpoint before has none
	used       TEXT    NOT NULL, -- digest of the used times of sessions, which no entry names
	low_water  INTEGER NOT NULL CHECK (low_water >= 0), -- as the table low_water has it
	layout     TEXT    NOT NULL, -- which columns the MACs cover
	mac        BLOB    NOT NULL
);
