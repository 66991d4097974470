//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() { programs["terminal"] = terminalProgram }

const (
	envStage   = "TERMINAL_STAGE"
	envNumbers = "TERMINAL_NUMBERS" // what is typed for a number: "" for the number itself
)

// terminalProgram [WHEN=TYPED…] -- PROGRAM ARGS… runs a program in a terminal of its own, as a terminal emulator does: it has no terminal itself, and
// nothing that is above it either. Where WHEN shows, TYPED and Enter are typed; where the gateway shows a number, the number. With TERMINAL_STAGE=inside
// the terminal is one inside of the terminal that it is started in, as script makes it.
func terminalProgram() {
	switch os.Getenv(envStage) {
	case "":
		os.Exit(detached())
	case "leave":
		again("emulate", &syscall.SysProcAttr{})
		os.Exit(0)
	case "emulate":
		for parent := os.Getppid(); os.Getppid() == parent && parentIsStage(parent); { // until the one between is gone
			time.Sleep(time.Millisecond)
		}
	}
	code := emulate(os.Args[1:])
	if os.Getenv(envStage) == "inside" {
		os.Exit(code)
	}
	fmt.Printf("\nexit %d\n", code)
}

// parentIsStage tells whether the parent is this program, too.
func parentIsStage(pid int) bool {
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return strings.Contains(string(environ), envStage+"=leave")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// again starts this program in another stage.
func again(stage string, attr *syscall.SysProcAttr) *exec.Cmd {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), envStage+"="+stage)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdout, os.Stderr, attr
	check(cmd.Start())
	return cmd
}

// detached starts the emulator where nothing above it has a terminal, shows what it writes and returns the program's exit code.
func detached() int {
	r, w, err := os.Pipe()
	check(err)
	out := os.Stdout
	os.Stdout = w
	leave := again("leave", &syscall.SysProcAttr{Setsid: true})
	w.Close()
	check(leave.Wait())
	code := -1
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "exit "); ok {
			code, err = strconv.Atoi(n)
			check(err)
			continue
		}
		fmt.Fprintln(out, strings.TrimRight(lines.Text(), "\r"))
	}
	return code
}

var number = regexp.MustCompile(`Type (\d{6}) and press Enter`)

// emulate runs the program in a new terminal and types.
func emulate(args []string) int {
	var pairs [][2]string
	for len(args) > 0 && args[0] != "--" {
		when, typed, _ := strings.Cut(args[0], "=")
		pairs, args = append(pairs, [2]string{when, typed}), args[1:]
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	check(err)
	check(unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	check(err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	check(err)
	cmd := exec.Command(args[1], args[2:]...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, envStage+"=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	check(cmd.Start())
	slave.Close()
	seen, shown := "", make([]byte, 4096)
	for {
		k, err := master.Read(shown)
		if err != nil { // the program and all below it have ended
			break
		}
		_, _ = os.Stdout.Write(shown[:k])
		seen += string(shown[:k])
		if m := number.FindStringSubmatchIndex(seen); m != nil {
			typed := os.Getenv(envNumbers)
			if typed == "" {
				typed = seen[m[2]:m[3]]
			}
			_, err = io.WriteString(master, strings.TrimSpace(typed)+"\n")
			check(err)
			seen = seen[m[1]:]
		}
		if len(pairs) > 0 && strings.Contains(seen, pairs[0][0]) {
			_, seen, _ = strings.Cut(seen, pairs[0][0])
			_, err = io.WriteString(master, pairs[0][1]+"\n")
			check(err)
			pairs = pairs[1:]
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
