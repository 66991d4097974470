-- Who has read a definition that a rule accepted when its server was first seen: '' is nobody.
ALTER TABLE pins ADD COLUMN confirmed_by TEXT NOT NULL DEFAULT '';
