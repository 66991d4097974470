package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
)

// maxNumber bounds the line that the person types.
const maxNumber = 100

// typedNumber reads from the terminal the number that the gateway has shown there. What is piped in is no answer.
func typedNumber(ctx context.Context) (string, error) {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return "", err
	}
	defer tty.Close()
	lines := make(chan string, 1)
	go func() { // a read that hangs ends with the program
		line, _ := bufio.NewReader(io.LimitReader(tty, maxNumber)).ReadString('\n') // without a line end, as by Ctrl-D: none
		lines <- line
	}()
	return numberFrom(ctx, lines)
}

// numberFrom takes the next line as the number.
func numberFrom(ctx context.Context, lines <-chan string) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case line := <-lines:
		if number := strings.TrimSpace(line); number != "" {
			return number, nil
		}
		return "", &found{what: "not confirmed: nothing was done"}
	}
}
