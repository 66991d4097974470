-- How the server was started or reached when the definition was accepted, and for the one that waits: a hash. '' is not known yet.
ALTER TABLE pins ADD COLUMN launch TEXT NOT NULL DEFAULT '';
ALTER TABLE pins ADD COLUMN pending_launch TEXT NOT NULL DEFAULT '';
