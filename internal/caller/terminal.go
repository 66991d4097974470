package caller

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is one process: its number, and when it began, since numbers are used again.
type Process struct {
	PID   int
	Began string // in ticks since the machine started
}

// Terminal is the controlling terminal of a process, as the kernel has it.
type Terminal struct {
	Process // that uses it
	Device  int
}

// Why there is no terminal to ask at.
var (
	ErrUnseen     = errors.New("the gateway can't see which program sent this: it has to run on the same machine, and the gateway as the same user")
	ErrNone       = errors.New("the program that sent this has no terminal")
	ErrBackground = errors.New("the program that sent this is in the background of its terminal")
	ErrNested     = errors.New("the program that sent this is in a terminal that another program made inside of a terminal, as script, expect and sudo do")
)

// TerminalOf finds the terminal of the program that connected to this machine from this machine: the one process that holds the connection, in the
// foreground of its terminal, with no process above it in another terminal.
func TerminalOf(server, client netip.AddrPort) (Terminal, error) {
	end := find(client, server)
	if end == nil || end.inode == "0" || find(server, client) == nil {
		return Terminal{}, ErrUnseen
	}
	pids := holders(end)
	if len(pids) != 1 {
		return Terminal{}, ErrUnseen
	}
	own, err := statusOf(pids[0])
	switch {
	case err != nil:
		return Terminal{}, ErrUnseen
	case own.terminal == 0:
		return Terminal{}, ErrNone
	case own.group != own.foreground:
		return Terminal{}, ErrBackground
	}
	all, whole := Lineage(pids[0])
	if !whole {
		return Terminal{}, ErrUnseen
	}
	for _, pid := range all {
		// One that can't be read is another user's, as of a machine that hides processes: the connection's own process can be read.
		if above, err := statusOf(pid); err == nil && above.terminal != 0 && above.terminal != own.terminal {
			return Terminal{}, fmt.Errorf("%w (process %d)", ErrNested, pid)
		}
	}
	return Terminal{Process{pids[0], own.began}, own.terminal}, nil
}

// Sees tells whether processes can be looked at here.
func Sees() bool {
	_, err := statusOf(os.Getpid())
	return err == nil
}

// status is what the kernel tells everybody of a process.
type status struct {
	terminal          int // 0: none
	group, foreground int // the process group, and the one in the foreground of the terminal
	began             string
}

func statusOf(pid int) (s status, err error) {
	line, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return s, err
	}
	f := strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:])) // the name before it may hold anything
	if len(f) < 20 {
		return s, fs.ErrInvalid
	}
	for i, to := range map[int]*int{2: &s.group, 4: &s.terminal, 5: &s.foreground} {
		if *to, err = strconv.Atoi(f[i]); err != nil {
			return s, err
		}
	}
	s.began = f[19]
	return s, nil
}

// writeTime bounds writing to a terminal, which somebody may have stopped.
const writeTime = time.Second

// Show writes text to the terminal.
func (t Terminal) Show(text string) error {
	path, err := t.path()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return err
	} else if deviceOf(st) != t.Device {
		return fmt.Errorf("%s is another terminal", path)
	}
	if err := f.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return err
}

// Numbers of kinds of terminals, in the kernel's list of devices.
const pseudoTerminals = 136

// path is the terminal's file.
func (t Terminal) path() (string, error) {
	major, minor := t.Device>>8&0xfff, t.Device&0xff|t.Device>>12&0xfff00
	if major == pseudoTerminals {
		return filepath.Join("/dev/pts", strconv.Itoa(minor)), nil
	}
	all, err := os.ReadDir("/dev")
	for _, entry := range all {
		if st, err := entry.Info(); err == nil && deviceOf(st) == t.Device {
			return filepath.Join("/dev", entry.Name()), nil
		}
	}
	return "", errors.Join(errors.New("the terminal has no file in /dev"), err)
}

// deviceOf is a file's device in the form that /proc has it; 0: it is no terminal.
func deviceOf(st fs.FileInfo) int {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || st.Mode()&fs.ModeCharDevice == 0 {
		return 0
	}
	device := uint64(sys.Rdev)
	major, minor := device>>8&0xfff, device&0xff|device>>12&0xffffff00
	return int(minor&0xff | major<<8 | minor&^0xff<<12)
}
