package main

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// unechoed does something while the terminal does not show what is typed.
func unechoed(ctx context.Context, terminal *os.File, do func() error) error {
	fd := int(terminal.Fd())
	was, err := unix.IoctlGetTermios(fd, getTerminal)
	if err != nil {
		return err
	}
	quiet := *was
	quiet.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, setTerminal, &quiet); err != nil {
		return err
	}
	restore := func() error { return unix.IoctlSetTermios(fd, setTerminal, was) }
	defer context.AfterFunc(ctx, func() { _ = restore() })() // a second Ctrl-C ends the program at once
	return errors.Join(do(), restore())
}
