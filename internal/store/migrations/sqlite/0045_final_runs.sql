-- What has ended is final in every column, so that it can't be opened again first and changed then; nor does a replacing insert change it, or another row take its place.
CREATE TRIGGER runs_ended BEFORE UPDATE ON runs
WHEN NEW.n <> OLD.n OR NEW.id <> OLD.id OR NEW.agent <> OLD.agent OR NEW.idem <> OLD.idem OR OLD.status <> 'running' AND (NEW.status <> OLD.status OR NEW.body <> OLD.body)
BEGIN SELECT RAISE(ABORT, 'a run that has ended is final'); END;
CREATE TRIGGER runs_insert BEFORE INSERT ON runs
WHEN EXISTS (SELECT 1 FROM runs WHERE id = NEW.id AND (n <> NEW.n OR agent <> NEW.agent OR idem <> NEW.idem OR status <> 'running' AND (status <> NEW.status OR body <> NEW.body)))
	OR EXISTS (SELECT 1 FROM runs WHERE n = NEW.n AND id <> NEW.id) OR NEW.idem <> '' AND EXISTS (SELECT 1 FROM runs WHERE idem = NEW.idem AND id <> NEW.id)
BEGIN SELECT RAISE(ABORT, 'a run is started once, and final once it has ended'); END;
CREATE TRIGGER recommendations_ended BEFORE UPDATE ON recommendations
WHEN NEW.n <> OLD.n OR NEW.id <> OLD.id OR NEW.agent <> OLD.agent
	OR OLD.state IN ('accepted', 'carried_out', 'failed', 'rejected', 'expired', 'superseded') AND (NEW.state <> OLD.state OR NEW.body <> OLD.body)
BEGIN SELECT RAISE(ABORT, 'a recommendation that was answered is final'); END;
CREATE TRIGGER recommendations_insert BEFORE INSERT ON recommendations
WHEN EXISTS (SELECT 1 FROM recommendations WHERE id = NEW.id AND (n <> NEW.n OR agent <> NEW.agent
		OR state IN ('accepted', 'carried_out', 'failed', 'rejected', 'expired', 'superseded') AND (state <> NEW.state OR body <> NEW.body)))
	OR EXISTS (SELECT 1 FROM recommendations WHERE n = NEW.n AND id <> NEW.id)
BEGIN SELECT RAISE(ABORT, 'a recommendation is made once, and final once it was answered'); END;
