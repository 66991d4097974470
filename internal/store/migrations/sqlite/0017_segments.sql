-- The files that the log was written to before this one, each sealed.
CREATE TABLE segments (
	name  TEXT PRIMARY KEY NOT NULL CHECK (name <> ''), -- of the file
	body  BLOB NOT NULL, -- JSON: its entries, its root and state at the end, size and SHA-256, where it was moved to
	entry INTEGER NOT NULL,
	mac   BLOB NOT NULL
);
