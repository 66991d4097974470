-- What happened to the documents of the knowledge store. Rows are only ever added: what would change, remove or replace one is refused by trigger. The
-- texts are in knowledge.db, sealed.
CREATE TABLE knowledge_events (
	key   TEXT PRIMARY KEY NOT NULL CHECK (key <> ''), -- of the document, and the event's number
	body  BLOB NOT NULL, -- JSON
	entry INTEGER NOT NULL,
	mac   BLOB NOT NULL
);

CREATE TRIGGER knowledge_events_update BEFORE UPDATE ON knowledge_events
BEGIN SELECT RAISE(ABORT, 'knowledge_events is append-only'); END;
CREATE TRIGGER knowledge_events_delete BEFORE DELETE ON knowledge_events
BEGIN SELECT RAISE(ABORT, 'knowledge_events is append-only'); END;
CREATE TRIGGER knowledge_events_insert BEFORE INSERT ON knowledge_events
WHEN EXISTS (SELECT 1 FROM knowledge_events WHERE key = NEW.key OR rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'knowledge_events is append-only'); END;

-- Lists of documents that do not change any more.
CREATE TABLE knowledge_snapshots (
	id    TEXT PRIMARY KEY NOT NULL CHECK (id <> ''),
	body  BLOB NOT NULL, -- JSON: up to which event, how many documents, the root over them
	entry INTEGER NOT NULL,
	mac   BLOB NOT NULL
);

CREATE TRIGGER knowledge_snapshots_update BEFORE UPDATE ON knowledge_snapshots
BEGIN SELECT RAISE(ABORT, 'knowledge_snapshots is append-only'); END;
CREATE TRIGGER knowledge_snapshots_delete BEFORE DELETE ON knowledge_snapshots
BEGIN SELECT RAISE(ABORT, 'knowledge_snapshots is append-only'); END;
CREATE TRIGGER knowledge_snapshots_insert BEFORE INSERT ON knowledge_snapshots
WHEN EXISTS (SELECT 1 FROM knowledge_snapshots WHERE id = NEW.id OR rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'knowledge_snapshots is append-only'); END;

-- What an index of a snapshot has to be, by the labels that it was built for.
CREATE TABLE knowledge_indexes (
	name   TEXT PRIMARY KEY NOT NULL CHECK (name <> ''),
	digest TEXT NOT NULL CHECK (length(digest) = 64),
	entry  INTEGER NOT NULL,
	mac    BLOB NOT NULL
);

CREATE TRIGGER knowledge_indexes_update BEFORE UPDATE ON knowledge_indexes
BEGIN SELECT RAISE(ABORT, 'knowledge_indexes is append-only'); END;
CREATE TRIGGER knowledge_indexes_delete BEFORE DELETE ON knowledge_indexes
BEGIN SELECT RAISE(ABORT, 'knowledge_indexes is append-only'); END;
CREATE TRIGGER knowledge_indexes_insert BEFORE INSERT ON knowledge_indexes
WHEN EXISTS (SELECT 1 FROM knowledge_indexes WHERE name = NEW.name OR rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'knowledge_indexes is append-only'); END;

-- The snapshot that a session reads, from its first reading on.
CREATE TABLE knowledge_pins (
	session  TEXT PRIMARY KEY NOT NULL CHECK (session <> ''),
	snapshot TEXT NOT NULL CHECK (snapshot <> ''),
	entry    INTEGER NOT NULL,
	mac      BLOB NOT NULL
);

CREATE TRIGGER knowledge_pins_update BEFORE UPDATE ON knowledge_pins
BEGIN SELECT RAISE(ABORT, 'knowledge_pins is append-only'); END;
CREATE TRIGGER knowledge_pins_delete BEFORE DELETE ON knowledge_pins
BEGIN SELECT RAISE(ABORT, 'knowledge_pins is append-only'); END;
CREATE TRIGGER knowledge_pins_insert BEFORE INSERT ON knowledge_pins
WHEN EXISTS (SELECT 1 FROM knowledge_pins WHERE session = NEW.session OR rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'knowledge_pins is append-only'); END;
