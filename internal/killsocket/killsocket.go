// Package killsocket is a way to the kill switch that needs no listener, no credential and no new descriptor: a socket of datagrams in the data
// directory. One message pulls the switch of all agents; nothing that can be sent takes it back.
//
// The message is the reason, as text. The answer, to the address that the sender was bound to, is an Answer as JSON. The kernel says which user sent
// a message. Receiving it takes no descriptor besides the socket's own, so that this way stays open when all others are used up; descriptors that
// come with a message are closed by the kernel.
//
// Who may write to the socket (mode 0600, in a directory of mode 0700) may stop everything: the gateway's own user, and root.
package killsocket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Name is the name of the socket in the data directory.
const Name = "kill.sock"

const (
	maxReason = 4096 // bytes that are read of a message
	maxAnswer = 16 << 10
	// answersAtOnce bounds the answers that wait for the store. One more message pulls the switch all the same, and is answered at once.
	answersAtOnce = 4
	durableWithin = time.Second            // an answer waits so long for the switch to be written down
	durablePoll   = 20 * time.Millisecond  // how often it looks
	answerWithin  = 100 * time.Millisecond // for a sender to have room for its answer
	pauseOnError  = 50 * time.Millisecond  // after a message that could not be received
)

// Answer says how the switch of all agents is.
type Answer struct {
	Active  bool      `json:"active"`
	Since   time.Time `json:"since"`
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
	Durable bool      `json:"durable"`
	Epoch   int64     `json:"epoch"`
}

// Options are the options of Listen. Every field is needed.
type Options struct {
	// Pull pulls the switch of all agents on behalf of uid:NUMBER. It must not block.
	Pull func(by, reason string) Answer
	// Status tells how the switch is. It must not block.
	Status func() Answer
	Log    *slog.Logger
}

// Socket takes messages until Close.
type Socket struct {
	o       Options
	path    string
	conn    *net.UnixConn
	closing chan struct{}
	once    sync.Once
	workers sync.WaitGroup
	answers chan struct{}
}

// Listen makes the socket in the directory, which the caller holds the lock of: a socket that is there is one that a crash left behind.
func Listen(dir string, o Options) (*Socket, error) {
	path := filepath.Join(dir, Name)
	if err := removeSocket(path); err != nil {
		return nil, err
	}
	conn, err := bind(dir)
	if err != nil {
		return nil, fmt.Errorf("%s can't be made: %w", path, err)
	}
	s := &Socket{o: o, path: path, conn: conn, closing: make(chan struct{}), answers: make(chan struct{}, answersAtOnce)}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := askForSenders(conn); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.workers.Go(s.receive)
	return s, nil
}

// removeSocket removes a socket, and nothing else, from the path.
func removeSocket(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is not a socket: move it away", path)
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// receive pulls the switch for each message.
func (s *Socket) receive() {
	buf := make([]byte, maxReason)
	for {
		n, who, from, err := receiveFrom(s.conn, buf)
		select {
		case <-s.closing:
			return
		default:
		}
		if err != nil {
			s.o.Log.Warn("a message to the kill switch's socket could not be received", "error", err)
			select {
			case <-time.After(pauseOnError):
			case <-s.closing:
				return
			}
			continue
		}
		now := s.o.Pull(who, strings.ToValidUTF8(strings.TrimSpace(string(buf[:n])), "\uFFFD"))
		if from == nil || from.Name == "" {
			continue // nobody waits for an answer
		}
		select {
		case s.answers <- struct{}{}:
			s.workers.Go(func() {
				defer func() { <-s.answers }()
				s.answer(from, s.durable(now))
			})
		default:
			s.answer(from, now)
		}
	}
}

// durable waits a moment for the switch to be written down, so that what is answered is not alarming for nothing.
func (s *Socket) durable(now Answer) Answer {
	tick := time.NewTicker(durablePoll)
	defer tick.Stop()
	for range durableWithin / durablePoll {
		if !now.Active || now.Durable {
			break
		}
		select {
		case <-tick.C:
		case <-s.closing:
			return now
		}
		if later := s.o.Status(); later.Active {
			now = later
		}
	}
	return now
}

// answer sends an answer. A sender that doesn't take it goes without: the switch is pulled.
func (s *Socket) answer(to *net.UnixAddr, a Answer) {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err) // of plain fields: encodes
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(answerWithin)) // the write then fails at once, which is as good
	if _, err := s.conn.WriteToUnix(b, to); err != nil {
		s.o.Log.Debug("an answer of the kill switch's socket was not taken", "error", err)
	}
}

// Close takes no more messages and removes the socket. Closing twice is harmless.
func (s *Socket) Close() (err error) {
	s.once.Do(func() {
		close(s.closing)
		err = s.conn.Close()
		s.workers.Wait()
		err = errors.Join(err, removeSocket(s.path))
	})
	return err
}

// ErrNoAnswer says that the message was taken by the socket and nothing was answered: the switch may be pulled.
var ErrNoAnswer = errors.New("the message was taken, and no answer came")

// Pull pulls the switch of the gateway whose data directory it is, and returns how the switch is then. An error other than ErrNoAnswer says that
// nothing was sent.
func Pull(ctx context.Context, dir, reason string) (Answer, error) {
	path := filepath.Join(dir, Name)
	st, err := os.Lstat(path)
	if err != nil {
		return Answer{}, err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return Answer{}, fmt.Errorf("%s is not a socket", path)
	}
	conn, done, err := open()
	if err != nil {
		return Answer{}, err
	}
	defer done()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) }) // an error is one that the read reports
	defer stop()
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	if err := send(conn, dir, []byte(reason)); err != nil {
		return Answer{}, err
	}
	buf := make([]byte, maxAnswer)
	for {
		n, who, _, err := receiveFrom(conn, buf)
		if err != nil {
			return Answer{}, fmt.Errorf("%w: %w", ErrNoAnswer, err)
		}
		var a Answer
		if !ownerIs(st, who) || json.Unmarshal(buf[:n], &a) != nil {
			continue // somebody else's
		}
		return a, nil
	}
}
