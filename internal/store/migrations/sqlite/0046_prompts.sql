-- What the system message says of a session's tools, as it was at the session's first request to a model.
CREATE TABLE session_prompts (
	session TEXT PRIMARY KEY NOT NULL CHECK (session <> ''),
	body    TEXT NOT NULL CHECK (body <> ''),
	entry   INTEGER NOT NULL,
	mac     BLOB NOT NULL
);
CREATE TRIGGER session_prompts_update BEFORE UPDATE OF session, body ON session_prompts
BEGIN SELECT RAISE(ABORT, 'what a session''s system message says is final'); END;
