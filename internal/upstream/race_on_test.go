//go:build race

package upstream

// slow is how much longer things may take in this build.
const slow = 10
