-- A token can be for the hook of a client that runs in a session.
CREATE TABLE tokens_new (
	id      TEXT PRIMARY KEY NOT NULL CHECK (id <> ''),
	hash    TEXT    NOT NULL UNIQUE CHECK (length(hash) = 64),
	kind    TEXT    NOT NULL CHECK (kind IN ('agent', 'host', 'session', 'person', 'hook')),
	subject TEXT    NOT NULL CHECK (subject <> ''),
	agent   TEXT    NOT NULL,
	roles   TEXT    NOT NULL, -- JSON
	created INTEGER NOT NULL, -- microseconds since 1970, as all times
	expires INTEGER,          -- NULL: never
	revoked INTEGER,          -- NULL: not revoked
	entry   INTEGER NOT NULL DEFAULT -1,
	mac     BLOB
);
INSERT INTO tokens_new (id, hash, kind, subject, agent, roles, created, expires, revoked, entry, mac)
	SELECT id, hash, kind, subject, agent, roles, created, expires, revoked, entry, mac FROM tokens ORDER BY rowid;
DROP TABLE tokens;
ALTER TABLE tokens_new RENAME TO tokens;
CREATE TRIGGER tokens_revoked BEFORE UPDATE OF id, hash, kind, subject, agent, roles, created, expires, revoked ON tokens WHEN OLD.revoked IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a revoked token stays revoked'); END;
