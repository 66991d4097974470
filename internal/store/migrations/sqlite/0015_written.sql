-- Keyed hashes of what sessions wrote to servers while they held untrusted content, with nobody's yes: later results confirm none of it.
CREATE TABLE written_values (
	id    TEXT PRIMARY KEY NOT NULL CHECK (id <> ''), -- of the call
	body  BLOB NOT NULL,
	entry INTEGER NOT NULL,
	mac   BLOB NOT NULL
);
