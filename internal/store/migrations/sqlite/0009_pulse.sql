-- When the store was last written to only to see whether it takes writes. One row; nothing is decided by it.
CREATE TABLE pulse (
	one INTEGER PRIMARY KEY CHECK (one = 1),
	at  INTEGER NOT NULL -- microseconds since 1970
);
