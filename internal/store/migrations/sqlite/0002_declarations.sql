-- What agents declared that they need, and what people answer to it. The columns are for finding; body is the whole, JSON.
CREATE TABLE declarations (
	id      TEXT PRIMARY KEY NOT NULL CHECK (id <> ''),
	session TEXT NOT NULL CHECK (session <> ''),
	state   TEXT NOT NULL CHECK (state IN ('approved', 'pending', 'rejected', 'spent', 'expired')),
	body    BLOB NOT NULL
);

CREATE TRIGGER declarations_final BEFORE UPDATE ON declarations WHEN OLD.state IN ('rejected', 'spent', 'expired') AND NEW.body <> OLD.body
BEGIN SELECT RAISE(ABORT, 'a decided declaration is final'); END;
CREATE TRIGGER declarations_delete BEFORE DELETE ON declarations
BEGIN SELECT RAISE(ABORT, 'declarations are kept'); END;

CREATE TABLE approvals (
	n           INTEGER PRIMARY KEY, -- the order of asking
	id          TEXT NOT NULL UNIQUE CHECK (id <> ''),
	session     TEXT NOT NULL CHECK (session <> ''),
	call_digest TEXT NOT NULL CHECK (length(call_digest) = 64),
	state       TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'rejected', 'deferred', 'expired', 'spent', 'superseded')),
	expires     INTEGER NOT NULL, -- microseconds since 1970; expiry is a matter of when one looks, and is not written down
	until       INTEGER,          -- of a deferral; NULL: until somebody takes it up
	body        BLOB NOT NULL
);
CREATE INDEX approvals_call ON approvals (session, call_digest, n);
CREATE INDEX approvals_session ON approvals (session, state, expires);
CREATE INDEX approvals_state ON approvals (state, expires);

CREATE TRIGGER approvals_final BEFORE UPDATE ON approvals WHEN OLD.state IN ('rejected', 'expired', 'spent', 'superseded') AND NEW.body <> OLD.body
BEGIN SELECT RAISE(ABORT, 'a final approval is final'); END;
CREATE TRIGGER approvals_delete BEFORE DELETE ON approvals
BEGIN SELECT RAISE(ABORT, 'approvals are kept'); END;
