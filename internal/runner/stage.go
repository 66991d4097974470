package runner

import (
	"os"
	"path/filepath"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/fault"
)

// staged is a program that a run can start.
type staged struct {
	agent.Staged
	dir string // the copies of what lies beside the declaration; absolute and free of links
}

// stage readies the program of a declaration. Runs of one declaration at the same time have one folder of copies, which the last of them removes. leave is
// called when the program has ended.
func (r *Runner) stage(d *agent.Declaration) (s staged, leave func(), err error) {
	r.staging.Lock()
	defer r.staging.Unlock()
	s.dir = filepath.Join(r.o.Dir, "program-"+d.Digest)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return s, nil, fault.Wrap(err, fault.SandboxUnavailable, "The copy of the run's program can't be made.")
	}
	if s.dir, err = filepath.EvalSymlinks(s.dir); err != nil {
		return s, nil, err
	}
	if s.Staged, err = d.Stage(s.dir, r.staged[d.Digest] > 0); err != nil {
		r.unstage(d.Digest, s.dir)
		return s, nil, err
	}
	r.staged[d.Digest]++
	return s, func() {
		if s.Program != nil {
			s.Program.Close()
		}
		r.staging.Lock()
		defer r.staging.Unlock()
		r.staged[d.Digest]--
		r.unstage(d.Digest, s.dir)
	}, nil
}

// unstage removes copies that no run uses. staging is held.
func (r *Runner) unstage(digest, dir string) {
	if r.staged[digest] > 0 {
		return
	}
	delete(r.staged, digest)
	if err := os.RemoveAll(dir); err != nil {
		r.o.Log.Warn("the copy of a run's program can't be removed", "path", dir, "error", err)
	}
}
