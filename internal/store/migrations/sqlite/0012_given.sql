-- Which open sessions hosts and people opened for agents, to be found without reading every session.
CREATE INDEX sessions_given ON sessions (n, agent, id) WHERE own = 0 AND state = 'open';
