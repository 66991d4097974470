package naming

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Key is a name as a key of YAML that is read back as it is: plain where it can be nothing else, or in quotes and ASCII.
func Key(name string) string {
	if plainKey.MatchString(name) && !slices.Contains(yamlWords, strings.ToLower(name)) {
		return name
	}
	return strconv.QuoteToASCII(name)
}

var (
	plainKey  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)
	yamlWords = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
)
