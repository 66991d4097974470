-- A session keeps more pieces: an untrusted one keeps one for each call beside that of its result. The bound in bytes stays.
CREATE TABLE evidence_new (
	session_id TEXT NOT NULL CHECK (session_id <> ''),
	seq        INTEGER NOT NULL CHECK (seq BETWEEN 1 AND 20000),
	call_id    TEXT NOT NULL CHECK (call_id <> ''),
	rules      TEXT NOT NULL CHECK (length(rules) = 64), -- digest of the labels under which it was observed
	total      INTEGER NOT NULL CHECK (total <= 16777216),
	body       BLOB NOT NULL CHECK (length(body) BETWEEN 1 AND 1048576),
	entry      INTEGER NOT NULL DEFAULT -1,
	mac        BLOB,
	PRIMARY KEY (session_id, seq)
);
INSERT INTO evidence_new (session_id, seq, call_id, rules, total, body, entry, mac)
	SELECT session_id, seq, call_id, rules, total, body, entry, mac FROM evidence ORDER BY session_id, seq;
DROP TABLE evidence;
ALTER TABLE evidence_new RENAME TO evidence;
