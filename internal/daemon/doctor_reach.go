package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sallyport.example/internal/comm/query"
	"sallyport.example/internal/display"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/npm"
	"sallyport.example/internal/sentence"
)

const (
	// lookTime bounds each look at a program's version or at an address.
	lookTime = 5 * time.Second
	// maxDocument bounds what is read of an identity provider's document.
	maxDocument = 1 << 20
)

// runner is a program that starts servers, about which there is more to say than where it lies.
type runner struct {
	install string   // the way to get it
	version []string // arguments that make it print its version
	least   int      // major version that today's servers need; 0: any
}

var runners = map[string]runner{
	"npm":     {"install Node.js, which has npm: https://nodejs.org", []string{"--version"}, 0},
	"npx":     {"install Node.js, which has npx: https://nodejs.org", []string{"--version"}, 0},
	"node":    {"install Node.js: https://nodejs.org", []string{"--version"}, 18},
	"uvx":     {"install uv, which has uvx: https://docs.astral.sh/uv", []string{"--version"}, 0},
	"uv":      {"install uv: https://docs.astral.sh/uv", []string{"--version"}, 0},
	"python3": {"install Python 3: https://www.python.org", []string{"--version"}, 3},
	"deno":    {"install Deno: https://deno.com", []string{"--version"}, 0},
	"bun":     {"install Bun: https://bun.sh", []string{"--version"}, 0},
	"docker":  {"install Docker, and start it", []string{"version", "--format", "{{.Server.Version}}"}, 0}, // of what runs the containers: without it nothing starts
}

// look is one thing that the doctor looks at, by itself.
type look func(ctx context.Context) Check

// doctorAround looks, all at once, for the programs that servers are started with, and whether what the configuration names on the network answers.
func doctorAround(ctx context.Context, cfg *Config, add func(name, state, remedy, format string, args ...any)) {
	looks := slices.Concat(cfg.programLooks(), cfg.serverLooks(), cfg.databaseLooks(), cfg.notifyLooks())
	if o := cfg.Console.OIDC; o != nil {
		looks = append(looks, func(ctx context.Context) Check { return lookAtIssuer(ctx, o.Issuer) })
	}
	found := make([]Check, len(looks))
	var all sync.WaitGroup
	for i, look := range looks {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, lookTime)
			defer cancel()
			found[i] = look(ctx)
		})
	}
	all.Wait()
	for _, c := range found {
		add(c.Name, c.State, c.Remedy, "%s", c.Detail)
	}
}

// programLooks looks for each program that a server is started with, once. A package that npx would run is fetched with npm, and started with node.
func (c *Config) programLooks() (looks []look) {
	users := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(c.Upstreams)) {
		u := c.Upstreams[id]
		if len(u.Command) == 0 {
			continue
		}
		needs := u.Command[:1]
		if _, npx := npm.Of(u.Command); npx {
			needs = []string{"npm", "node"}
		}
		for _, program := range needs {
			users[program] = append(users[program], id)
		}
	}
	for _, program := range slices.Sorted(maps.Keys(users)) {
		looks = append(looks, func(ctx context.Context) Check { return lookForProgram(ctx, program, users[program]) })
	}
	return looks
}

var versionNumber = regexp.MustCompile(`[0-9]+(\.[0-9]+)+`)

func lookForProgram(ctx context.Context, program string, servers []string) Check {
	r, known := runners[filepath.Base(program)]
	check := Check{Name: "program " + display.Line(program, 128), State: "ok"}
	path, err := exec.LookPath(program)
	needed := ", for " + sentence.Names(servers)
	if err != nil {
		check.State, check.Detail, check.Remedy = "failed", "it is not found"+needed, "install it, or give its whole path as the first word of the command"
		if known {
			check.Remedy = r.install
		}
		return check
	}
	if check.Detail = path + needed; !known {
		return check
	}
	cmd := exec.CommandContext(ctx, path, r.version...)
	cmd.WaitDelay = time.Second
	cmd.Dir = os.TempDir()
	out, err := cmd.Output()
	version := versionNumber.FindString(string(out[:min(len(out), 4096)]))
	major, _ := strconv.Atoi(strings.SplitN(version, ".", 2)[0]) // of no version: 0
	switch {
	case err != nil:
		check.State, check.Detail, check.Remedy = "failed", path+" does not run"+needed+": "+lastLine(err), r.install
	case version != "" && major < r.least:
		check.State, check.Remedy = "warning", fmt.Sprintf("today's servers need version %d or later: %s", r.least, r.install)
	}
	if version != "" {
		check.Detail = version + " at " + check.Detail
	}
	return check
}

// lastLine is the last line of what a program said when it failed, or the error.
func lastLine(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if lines := bytes.Split(bytes.TrimSpace(exit.Stderr), []byte("\n")); len(lines[len(lines)-1]) > 0 {
			return display.Line(string(lines[len(lines)-1]), 200)
		}
	}
	return err.Error()
}

// serverLooks asks each server that is reached by a url whether it is there. It sends no credential and no call.
func (c *Config) serverLooks() (looks []look) {
	for _, id := range slices.Sorted(maps.Keys(c.Upstreams)) {
		if address := c.Upstreams[id].URL; address != "" {
			looks = append(looks, func(ctx context.Context) Check {
				return answers(ctx, "server "+id, address, "check upstreams."+id+".url, the server, and the network between")
			})
		}
	}
	return looks
}

// answers tells whether an HTTP server answers, whatever it says.
func answers(ctx context.Context, name, address, remedy string) Check {
	resp, err := get(ctx, address)
	if err != nil {
		return Check{Name: name, State: "failed", Detail: "it does not answer: " + plainly(err), Remedy: remedy}
	}
	resp.Body.Close()
	if resp.StatusCode >= 500 {
		return Check{Name: name, State: "warning", Detail: "it answers " + resp.Status, Remedy: remedy}
	}
	return Check{Name: name, State: "ok", Detail: host(address) + " answers"}
}

func get(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return client.Do(req)
}

// plainly is the cause of a failed request, without its address, which can hold a secret.
func plainly(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("not within %s", lookTime)
	}
	return err.Error()
}

func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address"
	}
	return u.Host
}

// lookAtIssuer reads the identity provider's document, and whether it is that of the issuer.
func lookAtIssuer(ctx context.Context, issuer string) Check {
	check := Check{Name: "console.oidc", State: "failed", Remedy: "check console.oidc.issuer and the network: people can sign in with tokens and links meanwhile"}
	resp, err := get(ctx, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		check.Detail = host(issuer) + " does not answer: " + plainly(err)
		return check
	}
	defer resp.Body.Close()
	var document struct {
		Issuer string `json:"issuer"`
	}
	switch err := json.NewDecoder(io.LimitReader(resp.Body, maxDocument)).Decode(&document); {
	case resp.StatusCode != http.StatusOK || err != nil:
		check.Detail = host(issuer) + " has no document of an identity provider: it answers " + resp.Status
	case document.Issuer != issuer:
		check.Detail = fmt.Sprintf("it calls itself %s, and the configuration %s", display.Quote(document.Issuer, 200), display.Quote(issuer, 200))
		check.Remedy = "write the issuer as the provider does"
	default:
		return Check{Name: check.Name, State: "ok", Detail: host(issuer) + " answers as " + issuer}
	}
	return check
}

// notifyLooks connects to where messages to people go, and sends nothing.
func (c *Config) notifyLooks() (looks []look) {
	for i, n := range c.Notify {
		name := fmt.Sprintf("notify[%d] %s", i, n.Kind)
		looks = append(looks, func(ctx context.Context) Check {
			at, encrypted := n.SMTP, false
			if u, err := url.Parse(n.URL); n.URL != "" && err == nil {
				at, encrypted = u.Host, u.Scheme == "https"
				if u.Port() == "" {
					at = net.JoinHostPort(u.Hostname(), map[bool]string{true: "443", false: "80"}[encrypted])
				}
			}
			if err := connects(ctx, at, encrypted); err != nil {
				return Check{Name: name, State: "failed", Detail: at + " can't be reached: " + plainly(err), Remedy: "check its address and the network: nobody is told of requests and alerts this way"}
			}
			return Check{Name: name, State: "ok", Detail: at + " can be reached; nothing was sent"}
		})
	}
	return looks
}

// connects tells whether a server takes connections at host:port, and has a good certificate where one is needed.
func connects(ctx context.Context, at string, encrypted bool) error {
	dial := (&net.Dialer{}).DialContext
	if encrypted {
		dial = (&tls.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", at)
	if err != nil {
		return err
	}
	return conn.Close()
}

// databaseLooks reads the tables of each database.
func (c *Config) databaseLooks() (looks []look) {
	for _, id := range slices.Sorted(maps.Keys(c.databases())) {
		looks = append(looks, func(ctx context.Context) Check {
			check := Check{Name: "comm.databases." + id, State: "failed"}
			dbs, err := query.New(query.Options{Databases: map[string]string{id: c.databases()[id]}, Timeout: lookTime})
			if err != nil {
				check.Detail, check.Remedy = fault.Of(err).Message, fault.Of(err).Remedy
				return check
			}
			defer dbs.Close() // nothing was written
			schema, err := dbs.Schema(ctx, id)
			if err != nil {
				check.Detail, check.Remedy = fault.Of(err).Message, fault.Of(err).Remedy
				return check
			}
			check.State, check.Detail = "ok", fmt.Sprintf("%d tables and views", len(schema.Tables))
			if warnings, err := dbs.Warnings(ctx, id); err == nil && len(warnings) > 0 {
				check.State, check.Detail, check.Remedy = "warning", check.Detail+"; its role can do more than read", strings.Join(warnings, " ")
			}
			return check
		})
	}
	return looks
}
