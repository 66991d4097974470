-- Pages of open or closed sessions are found without reading those of the other state.
CREATE INDEX sessions_state ON sessions (state, n);
-- The newest requests that ended in one way are found without sorting all of them. Those that wait are few, and found by when they expire.
CREATE INDEX approvals_ended ON approvals (state, n) WHERE state IN ('rejected', 'spent', 'superseded');
