-- The confidentiality labels of what was written to servers in sessions that hold labels.
CREATE TABLE stored_labels (
	id    TEXT PRIMARY KEY NOT NULL CHECK (id <> ''),
	body  BLOB NOT NULL, -- JSON: the place, the labels, since when
	entry INTEGER NOT NULL,
	mac   BLOB NOT NULL
);
