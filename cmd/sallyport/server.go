package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sallyport.example/client"
	"sallyport.example/internal/clients"
	"sallyport.example/internal/identity"
	"sallyport.example/internal/store"
)

// defaultData is the directory, in the working directory, where serve keeps its state and the other commands look for a gateway.
const defaultData = "sallyport-data"

const (
	envURL   = clients.EnvURL
	envToken = clients.EnvToken
)

// side is one of the gateway's two listeners: its name in addresses.json, and whose token the data directory has for it.
type side struct{ name, tokenFile string }

var (
	agentSide = side{"agent", "local.token"}
	adminSide = side{"admin", "admin.token"}
)

// address finds a side of the gateway: SALLYPORT_URL, else what the gateway left in its data directory.
func (c *cli) address(s side) (string, error) {
	if u := os.Getenv(envURL); u != "" {
		return strings.TrimRight(u, "/"), nil
	}
	path := filepath.Join(c.data, "addresses.json")
	b, err := readRegular(path, maxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		data := c.data
		if whole, err := filepath.Abs(data); err == nil {
			data = whole
		}
		if store.InUse(c.data) != nil {
			return "", unreachable("a gateway is starting with the data directory %s: try again in a moment", data)
		}
		return "", unreachable("no gateway was ever started with the data directory %s: sallyport serve starts one. Is one running elsewhere? Go to its folder, or name its directory with --data (or its address with %s)", data, envURL)
	}
	if err != nil {
		return "", unreachable("the gateway's address can't be read: %v", err)
	}
	var addresses map[string]string
	if err := json.Unmarshal(b, &addresses); err != nil || addresses[s.name] == "" {
		return "", unreachable("%s holds no address of the %s side: start the gateway again, it writes the file", path, s.name)
	}
	return addresses[s.name], nil
}

// credential finds the token for a side: SALLYPORT_TOKEN, else what the gateway's first start left in its data directory. People's commands pass
// over an agent's SALLYPORT_TOKEN, which is in the environment so that clients find it, and send the directory's token to no address that an agent's
// environment names. Inside a governed session they are refused.
func (c *cli) credential(s side) (string, error) {
	if s == adminSide {
		if err := refuseGoverned(); err != nil {
			return "", err
		}
	}
	if t := strings.TrimSpace(os.Getenv(envToken)); t != "" {
		kind := identity.KindOf(t)
		switch {
		case s != adminSide || kind != identity.Agent:
			return t, nil
		case os.Getenv(envURL) != "":
			return "", usagef("%s holds the token of an agent, and with %s people's commands need a person's: set it to one (sallyport token create --person ID --role ROLE makes it)", envToken, envURL)
		}
	}
	path := filepath.Join(c.data, s.tokenFile)
	b, err := readRegular(path, maxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		if s == agentSide {
			return "", usagef("no agent's token is here: begin a session with sallyport run --agent ID -- COMMAND, or set %s to a token (sallyport token create --agent ID makes one)", envToken)
		}
		return "", usagef("there is no token in %s: set %s to one (sallyport token create --person ID --role ROLE makes it)", path, envToken)
	}
	if err != nil {
		return "", usagef("the token can't be read: %v (set %s)", err, envToken)
	}
	return strings.TrimSpace(string(b)), nil
}

// reach returns a client of one side. It makes no connection yet.
func (c *cli) reach(s side) (*client.Client, error) {
	address, err := c.address(s)
	if err != nil {
		return nil, err
	}
	token, err := c.credential(s)
	if err != nil {
		return nil, err
	}
	cl, err := client.New(address, token)
	if err != nil {
		return nil, usagef("%v (see %s, %s)", err, envURL, envToken)
	}
	if s == adminSide && c.output == "table" && hasTerminal() { // in other forms nobody is asked
		cl = cl.Confirming(typedNumber)
	}
	return cl, nil
}

// maxSmall bounds tokens, addresses and the like, in bytes.
const maxSmall = 64 << 10

// readRegular reads a regular file of no more than that many bytes; a pipe or device is not opened.
func readRegular(path string, most int64) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d bytes, which is all that is read", path, most)
	}
	return b, err
}
