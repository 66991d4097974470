-- What agents have used of their quotas, in the window that is counted now.
CREATE TABLE quota_use (
	key      TEXT    PRIMARY KEY NOT NULL CHECK (key <> ''), -- agent, resource, window
	start    INTEGER NOT NULL, -- of the window, in microseconds
	used     INTEGER NOT NULL CHECK (used >= 0),
	reserved INTEGER NOT NULL CHECK (reserved >= 0), -- set aside for what is under way
	entry    INTEGER NOT NULL,
	mac      BLOB    NOT NULL
);
