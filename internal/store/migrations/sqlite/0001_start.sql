-- The log. Rows are only ever added: what would change, remove or replace one is refused by trigger, and an index that
-- would leave a gap or come twice is refused too. That is a guard against accidents and plain SQL; who can write the file can
-- drop a trigger, and is found by the tree over the entries and the signed checkpoints.
CREATE TABLE audit_entries (
	idx     INTEGER PRIMARY KEY CHECK (idx >= 0),
	at      INTEGER NOT NULL, -- microseconds since 1970, never less than the row before
	-- Not IN (…): that builds a table to look it up in for every row, and doubles the cost of an insert.
	kind    TEXT    NOT NULL CHECK (kind = 'intent' OR kind = 'outcome' OR kind = 'decision' OR kind = 'change'),
	call_id TEXT    NOT NULL CHECK (call_id <> '' OR kind <> 'intent' AND kind <> 'outcome'),
	body    BLOB    NOT NULL CHECK (length(body) BETWEEN 1 AND 65535) -- the leaf: the entry's exact bytes, JSON
);

CREATE TRIGGER audit_entries_update BEFORE UPDATE ON audit_entries
BEGIN SELECT RAISE(ABORT, 'audit_entries is append-only'); END;
CREATE TRIGGER audit_entries_delete BEFORE DELETE ON audit_entries
BEGIN SELECT RAISE(ABORT, 'audit_entries is append-only'); END;
CREATE TRIGGER audit_entries_insert BEFORE INSERT ON audit_entries
WHEN NEW.idx IS NOT (SELECT coalesce(max(idx) + 1, 0) FROM audit_entries)
BEGIN SELECT RAISE(ABORT, 'audit_entries is append-only'); END;

-- Complete tiles of the Merkle tree: 256 hashes each. The incomplete ones follow from the entries.
CREATE TABLE audit_tiles (
	level  INTEGER NOT NULL CHECK (level >= 0),
	n      INTEGER NOT NULL CHECK (n >= 0),
	hashes BLOB    NOT NULL CHECK (length(hashes) = 8192),
	PRIMARY KEY (level, n)
) WITHOUT ROWID;

CREATE TRIGGER audit_tiles_update BEFORE UPDATE ON audit_tiles
BEGIN SELECT RAISE(ABORT, 'audit_tiles is append-only'); END;
CREATE TRIGGER audit_tiles_delete BEFORE DELETE ON audit_tiles
BEGIN SELECT RAISE(ABORT, 'audit_tiles is append-only'); END;
CREATE TRIGGER audit_tiles_insert BEFORE INSERT ON audit_tiles
WHEN EXISTS (SELECT 1 FROM audit_tiles WHERE level = NEW.level AND n = NEW.n)
BEGIN SELECT RAISE(ABORT, 'audit_tiles is append-only'); END;

-- What each complete block of 256 entries has in it: the sorted 32-bit hashes of its agents, sessions, calls, actions and so
-- on, by which a query passes over blocks that can't match. An index over each column costs twenty times as much per entry.
CREATE TABLE audit_blocks (
	n    INTEGER PRIMARY KEY CHECK (n >= 0),
	keys BLOB NOT NULL
);

CREATE TRIGGER audit_blocks_update BEFORE UPDATE ON audit_blocks
BEGIN SELECT RAISE(ABORT, 'audit_blocks is append-only'); END;
CREATE TRIGGER audit_blocks_delete BEFORE DELETE ON audit_blocks
BEGIN SELECT RAISE(ABORT, 'audit_blocks is append-only'); END;
CREATE TRIGGER audit_blocks_insert BEFORE INSERT ON audit_blocks
WHEN EXISTS (SELECT 1 FROM audit_blocks WHERE n = NEW.n)
BEGIN SELECT RAISE(ABORT, 'audit_blocks is append-only'); END;

-- Arguments and results too large for an entry, redacted, by the SHA-256 that the entry names.
CREATE TABLE audit_payloads (
	n     INTEGER PRIMARY KEY, -- the order of coming
	key   TEXT NOT NULL UNIQUE CHECK (length(key) = 64),
	bytes BLOB NOT NULL
);

CREATE TRIGGER audit_payloads_update BEFORE UPDATE ON audit_payloads
BEGIN SELECT RAISE(ABORT, 'audit_payloads is append-only'); END;
CREATE TRIGGER audit_payloads_delete BEFORE DELETE ON audit_payloads
BEGIN SELECT RAISE(ABORT, 'audit_payloads is append-only'); END;
CREATE TRIGGER audit_payloads_insert BEFORE INSERT ON audit_payloads
WHEN EXISTS (SELECT 1 FROM audit_payloads WHERE key = NEW.key OR n = NEW.n)
BEGIN SELECT RAISE(ABORT, 'audit_payloads is append-only'); END;

-- Signed checkpoints, each put into the file audit.checkpoint before it is put here.
CREATE TABLE audit_checkpoints (
	size INTEGER PRIMARY KEY CHECK (size >= 0),
	note BLOB NOT NULL
);

CREATE TRIGGER audit_checkpoints_update BEFORE UPDATE ON audit_checkpoints
BEGIN SELECT RAISE(ABORT, 'audit_checkpoints is append-only'); END;
CREATE TRIGGER audit_checkpoints_delete BEFORE DELETE ON audit_checkpoints
BEGIN SELECT RAISE(ABORT, 'audit_checkpoints is append-only'); END;
CREATE TRIGGER audit_checkpoints_insert BEFORE INSERT ON audit_checkpoints
WHEN NEW.size <= (SELECT max(size) FROM audit_checkpoints)
BEGIN SELECT RAISE(ABORT, 'audit_checkpoints is append-only'); END;

-- For people with a SQL shell; the program reads the entries' bytes.
CREATE VIEW log AS SELECT idx, at, kind, call_id,
	json_extract(CAST(body AS TEXT), '$.action')    AS action,
	json_extract(CAST(body AS TEXT), '$.agent')     AS agent,
	json_extract(CAST(body AS TEXT), '$.session')   AS session,
	json_extract(CAST(body AS TEXT), '$.operation') AS operation,
	json_extract(CAST(body AS TEXT), '$.decision')  AS decision,
	CAST(body AS TEXT) AS body
FROM audit_entries;

CREATE TABLE sessions (
	n       INTEGER PRIMARY KEY, -- the order of opening
	id      TEXT    NOT NULL UNIQUE CHECK (id <> ''),
	agent   TEXT    NOT NULL CHECK (agent <> ''),
	own     INTEGER NOT NULL CHECK (own IN (0, 1)),
	phase   TEXT    NOT NULL CHECK (phase IN ('planning', 'execution')),
	state   TEXT    NOT NULL CHECK (state IN ('open', 'closed')),
	version INTEGER NOT NULL CHECK (version >= 1),
	used_ns INTEGER NOT NULL CHECK (used_ns >= 0), -- newer than in body
	body    BLOB    NOT NULL -- the whole session, JSON
);
CREATE UNIQUE INDEX sessions_own ON sessions (agent) WHERE own = 1 AND state = 'open';
CREATE INDEX sessions_agent ON sessions (agent, n);

CREATE TRIGGER sessions_final BEFORE UPDATE ON sessions WHEN OLD.state = 'closed' AND NEW.state <> 'closed'
BEGIN SELECT RAISE(ABORT, 'a closed session is final'); END;
CREATE TRIGGER sessions_version BEFORE UPDATE ON sessions WHEN NEW.version < OLD.version OR NEW.used_ns < OLD.used_ns
BEGIN SELECT RAISE(ABORT, 'version and used time of a session never fall'); END;

CREATE TABLE tokens (
	id      TEXT PRIMARY KEY NOT NULL CHECK (id <> ''),
	hash    TEXT    NOT NULL UNIQUE CHECK (length(hash) = 64),
	kind    TEXT    NOT NULL CHECK (kind IN ('agent', 'host', 'session', 'person')),
	subject TEXT    NOT NULL CHECK (subject <> ''),
	agent   TEXT    NOT NULL,
	roles   TEXT    NOT NULL, -- JSON
	created INTEGER NOT NULL, -- microseconds since 1970, as all times
	expires INTEGER,          -- NULL: never
	revoked INTEGER           -- NULL: not revoked
);

CREATE TRIGGER tokens_revoked BEFORE UPDATE ON tokens WHEN OLD.revoked IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a revoked token stays revoked'); END;

CREATE TABLE pins (
	operation   TEXT PRIMARY KEY NOT NULL CHECK (operation <> ''),
	hash        TEXT    NOT NULL,
	definition  BLOB,
	pending     TEXT    NOT NULL,
	pending_def BLOB,
	accepted_by TEXT    NOT NULL,
	accepted_at INTEGER          -- NULL: not yet
);

-- One row: the whole kill switch.
CREATE TABLE switches (
	one   INTEGER PRIMARY KEY CHECK (one = 1),
	epoch INTEGER NOT NULL CHECK (epoch >= 0),
	body  BLOB    NOT NULL -- JSON
);

CREATE TRIGGER switches_epoch BEFORE UPDATE ON switches WHEN NEW.epoch < OLD.epoch
BEGIN SELECT RAISE(ABORT, 'the epoch of the kill switch never falls'); END;

-- Every entry below the mark that is an intent has its outcome. One row.
CREATE TABLE low_water (
	one INTEGER PRIMARY KEY CHECK (one = 1),
	idx INTEGER NOT NULL CHECK (idx >= 0)
);
INSERT INTO low_water (one, idx) VALUES (1, 0);
