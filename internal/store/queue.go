package store

import (
	"sync"

	"sallyport.example/internal/audit"
)

const (
	// maxBatch bounds the jobs of one transaction, maxTurn those of one agent in it: a job that comes meanwhile waits for a short transaction, whatever
	// the others have in the queue.
	maxBatch = 256
	maxTurn  = 64
	// maxRefusals bounds the refusals of one transaction, of all agents: somebody who is only refused takes little from those who work.
	maxRefusals = 16
	// maxQueue bounds the jobs that wait. An agent with fewer than maxTurn of them is let in all the same.
	maxQueue = 4096
	// maxIdleLines bounds the lines that are kept while nothing waits in them.
	maxIdleLines = 1024
)

// queue holds the jobs that wait for the writer: a line for each agent, one for its refusals, and one for what is nobody's. The lines take turns; in a line the
// first comes first.
type queue struct {
	mu      sync.Mutex // guards all but the channels
	lines   map[whose]*line
	turns   []*line // those in which jobs wait; the first one is served first
	spare   []*line // memory for the next turns
	waiting int
	closed  bool
	wake    chan struct{} // holds one
	stopped chan struct{} // closed when the writer's goroutine has ended
}

// whose names a line.
type whose struct {
	agent   string // "" for people and the gateway itself
	refused bool   // what was refused
}

// line is first in, first out.
type line struct {
	whose
	jobs  []*job
	head  int // of jobs: the next one
	taken int // into the batch that is being made
}

func newQueue() queue {
	return queue{lines: map[whose]*line{}, wake: make(chan struct{}, 1), stopped: make(chan struct{})}
}

// lineOf is the line of entries that are written together.
func lineOf(entries ...audit.Entry) whose {
	if len(entries) == 0 {
		return whose{}
	}
	e := &entries[0]
	return whose{agent: e.Agent, refused: e.Kind == audit.Decision && e.Decision == "deny"}
}

// add puts a job into its line.
func (q *queue) add(j *job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[j.whose]
	if l == nil {
		l = &line{whose: j.whose}
	}
	switch {
	case q.closed:
		return gaveUp("the store is closed", nil)
	case q.waiting >= maxQueue && l.len() >= maxTurn:
		return gaveUp("too many writes wait", nil)
	}
	if l.len() == 0 {
		q.lines[j.whose] = l
		q.turns = append(q.turns, l)
	}
	l.jobs = append(l.jobs, j)
	q.waiting++
	q.signal()
	return nil
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for jobs, and moves some of them into batch: of each line in turn, until the batch or each line's share is full. It returns none when the
// queue is closed and empty.
func (q *queue) take(batch []*job) []*job {
	for {
		q.mu.Lock()
		batch = q.next(batch[:0])
		closed := q.closed
		q.mu.Unlock()
		if len(batch) > 0 || closed {
			return batch
		}
		<-q.wake
	}
}

func (q *queue) next(batch []*job) []*job {
	refusals, begin := 0, 0
	for progress := true; progress && len(batch) < maxBatch; {
		progress = false
		for i, l := range q.turns {
			if l.len() == 0 || l.taken == maxTurn || l.refused && refusals == maxRefusals {
				continue
			}
			if len(batch) == maxBatch {
				begin = i // it is served first the next time
				break
			}
			if l.refused {
				if refusals++; refusals == maxRefusals {
					begin = i + 1 // so that the refusals of all agents get their turns
				}
			}
			l.taken++
			batch = append(batch, l.pop())
			progress = true
		}
	}
	q.waiting -= len(batch)
	q.rotate(begin)
	return batch
}

// rotate has the line at begin served first the next time, and leaves empty ones out.
func (q *queue) rotate(begin int) {
	rest := q.spare[:0]
	for i := range q.turns {
		l := q.turns[(begin+i)%len(q.turns)]
		if l.taken = 0; l.len() > 0 {
			rest = append(rest, l)
		} else if len(q.lines) > maxIdleLines {
			delete(q.lines, l.whose)
		}
	}
	q.turns, q.spare = rest, q.turns
}

// close takes no more jobs, and waits until the writer has served those in the queue.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
	<-q.stopped
}

func (l *line) len() int { return len(l.jobs) - l.head }

func (l *line) pop() *job {
	j := l.jobs[l.head]
	l.jobs[l.head] = nil
	l.head++
	switch {
	case l.head == len(l.jobs):
		l.jobs, l.head = l.jobs[:0], 0
	case l.head >= maxTurn && l.head*2 >= len(l.jobs): // a line that is never empty must not grow
		n := copy(l.jobs, l.jobs[l.head:])
		clear(l.jobs[n:])
		l.jobs, l.head = l.jobs[:n], 0
	}
	return j
}
