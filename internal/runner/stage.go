package runner

import (
	"os"
	"path/filepath"
	"sync"

	"sallyport.example/internal/agent"
	"sallyport.example/internal/call"
	"sallyport.example/internal/fault"
)

// staged is a program that a run can start.
type staged struct {
	agent.Staged
	dir string // the copies of what lies beside the declaration; absolute and free of links
}

// copies are what lies beside a declaration, for the runs of it at one time.
type copies struct {
	dir  string
	uses int // runs that have them or wait for them; guarded by Runner.staging

	mu   sync.Mutex // held while they are made or hashed: a large program holds up runs of its own declaration alone
	made bool
}

// stage readies the program of a declaration. Runs of one declaration at the same time have one folder of copies, which the last of them removes. leave is
// called when the program has ended.
func (r *Runner) stage(d *agent.Declaration) (s staged, leave func(), err error) {
	c := r.borrow(d)
	leave = func() {
		if s.Program != nil {
			s.Program.Close()
		}
		r.giveBack(d, c)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = os.MkdirAll(c.dir, 0o700); err != nil {
		err = fault.Wrap(err, fault.SandboxUnavailable, "The copy of the run's program can't be made.")
	} else if s.dir, err = filepath.EvalSymlinks(c.dir); err == nil {
		s.Staged, err = d.Stage(s.dir, c.made)
	}
	if err != nil {
		leave()
		return s, nil, err
	}
	c.made = true
	return s, leave, nil
}

// borrow are the copies that the runs of a declaration have by now, or a place for new ones.
func (r *Runner) borrow(d *agent.Declaration) *copies {
	r.staging.Lock()
	defer r.staging.Unlock()
	c := r.copies[d.Digest]
	if c == nil {
		c = &copies{dir: filepath.Join(r.o.Dir, call.NewID("program-", r.o.Clock()))}
		r.copies[d.Digest] = c
	}
	c.uses++
	return c
}

// giveBack removes copies that no run uses any more.
func (r *Runner) giveBack(d *agent.Declaration, c *copies) {
	r.staging.Lock()
	c.uses--
	last := c.uses == 0
	if last {
		delete(r.copies, d.Digest)
	}
	r.staging.Unlock()
	if !last {
		return
	}
	if err := os.RemoveAll(c.dir); err != nil {
		r.o.Log.Warn("the copy of a run's program can't be removed", "path", c.dir, "error", err)
	}
}
