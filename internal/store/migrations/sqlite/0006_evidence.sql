-- What the results of a session showed, and what people approved, so that an argument can be traced to where it came from. Rows are only
-- added. total is the size of all bodies up to this row: a session keeps 2,000 rows and 16 MiB, and a row has 1 MiB at most.
CREATE TABLE evidence (
	session_id TEXT NOT NULL CHECK (session_id <> ''),
	seq        INTEGER NOT NULL CHECK (seq BETWEEN 1 AND 2000),
	call_id    TEXT NOT NULL CHECK (call_id <> ''),
	rules      TEXT NOT NULL CHECK (length(rules) = 64), -- digest of the labels under which it was observed
	total      INTEGER NOT NULL CHECK (total <= 16777216),
	body       BLOB NOT NULL CHECK (length(body) BETWEEN 1 AND 1048576),
	PRIMARY KEY (session_id, seq)
);
