-- What people are to be told, a row for each channel: the outbox. A row that is done stays for a while, so that its key is not
-- taken a second time.
CREATE TABLE notices (
	n       INTEGER PRIMARY KEY,
	channel TEXT    NOT NULL CHECK (channel <> ''),
	key     TEXT    NOT NULL CHECK (key <> ''),
	event   TEXT    NOT NULL CHECK (event <> ''),
	state   TEXT    NOT NULL CHECK (state IN ('waiting', 'sent', 'folded', 'failed')), -- folded: a digest stands for it
	added   INTEGER NOT NULL, -- microseconds since 1970, as all times
	due     INTEGER NOT NULL,
	tries   INTEGER NOT NULL CHECK (tries >= 0),
	error   TEXT    NOT NULL, -- of the last try
	body    BLOB    NOT NULL, -- the message, JSON; empty when it was sent or folded
	UNIQUE (channel, key)
);
CREATE INDEX notices_due ON notices (channel, event, due, n) WHERE state = 'waiting';
CREATE INDEX notices_added ON notices (added);

CREATE TRIGGER notices_final BEFORE UPDATE ON notices WHEN OLD.state <> 'waiting'
BEGIN SELECT RAISE(ABORT, 'a notice that is done is final'); END;

-- What became of them, by channel, since the first.
CREATE TABLE notice_channels (
	channel      TEXT PRIMARY KEY NOT NULL CHECK (channel <> ''),
	sent         INTEGER NOT NULL,
	failed       INTEGER NOT NULL, -- given up
	last_error   TEXT    NOT NULL,
	last_failure INTEGER,          -- NULL: there was none
	last_success INTEGER           -- NULL: there was none
) WITHOUT ROWID;
