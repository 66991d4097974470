-- Questions that no agent asked: they are there to see whether people read what they approve.
CREATE TABLE drills (
	id TEXT PRIMARY KEY NOT NULL CHECK (id <> '') -- of the approval
) WITHOUT ROWID;
