package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.example/internal/anchor"
	"sallyport.example/internal/backup"
	"sallyport.example/internal/daemon"
	"sallyport.example/internal/fault"
	"sallyport.example/internal/knowledge"
	"sallyport.example/internal/store"
)

func (c *cli) backup() *cobra.Command {
	var keys bool
	var secret string
	cmd := c.command(about{
		use: "backup FILE", short: "Write a data directory to one file, while a gateway runs on it or not",
		long: `FILE is a new tar archive with the database as it is at one moment, whose log is verified before the file gets its name. The keys (signing.key,
state.key) are left out: keep them apart. With --with-keys they are in it, encrypted under a passphrase, which is asked for at a terminal or read
from --passphrase-file. Tokens in files, workspaces and the cache are not in it.`,
		example: `sallyport backup /backups/sallyport-2026-01-31.tar
sallyport backup whole.tar --with-keys --passphrase-file /safe/passphrase`, args: cobra.ExactArgs(1), prints: true,
	}, func(ctx context.Context, args []string) error {
		passphrase := ""
		if secret != "" && !keys {
			return usagef("--passphrase-file is for --with-keys")
		}
		if keys {
			var err error
			if passphrase, err = c.passphrase(ctx, secret, true); err != nil {
				return err
			}
		}
		m, err := backup.Write(ctx, c.data, args[0], buildVersion(), passphrase, time.Now())
		if err != nil {
			return err
		}
		return c.print(m, func(t *table) {
			t.line("%s: written and verified", args[0])
			described(t, m)
			if !m.Keys {
				t.line("The keys are not in it: keep signing.key and state.key of %s apart, or it can't be restored.", c.data)
			}
		})
	})
	cmd.Flags().BoolVar(&keys, "with-keys", false, "put the keys in, encrypted under a passphrase")
	passphraseFlag(cmd, &secret)
	return cmd
}

func passphraseFlag(cmd *cobra.Command, secret *string) {
	cmd.Flags().StringVar(secret, "passphrase-file", "", "file whose first line is the passphrase of the keys (default: asked for)")
	must(cmd.MarkFlagFilename("passphrase-file"))
}

func described(t *table, m backup.Manifest) {
	t.field("log", m.Origin)
	t.field("entries", m.Entries)
	t.field("newest entry", m.Newest)
	t.field("made", m.At)
	t.field("bytes", m.Size())
	t.field("keys", map[bool]string{true: "encrypted", false: "left out"}[m.Keys])
}

// restored is what restore prints.
type restored struct {
	Backup backup.Manifest `json:"backup"`
	Closed int             `json:"sessions_closed"`
	Anchor *anchor.Finding `json:"anchor,omitempty"`
	Moved  bool            `json:"anchor_moved"`
}

// maxErasures bounds the file of erasures, in bytes.
const maxErasures = 64 << 20

func (c *cli) restore() *cobra.Command {
	var keys, secret, config, reason, erasures string
	var move bool
	cmd := c.command(about{
		use: "restore FILE", short: "Make a data directory of a backup",
		long: `The directory that --data names must be empty, or not be there. The backup is checked byte for byte, its log is verified, the restoring is put on
record, and the sessions that were open are closed. Where the backup has no keys, --keys names the folder that they are kept in.
Documents that were erased after the backup have their keys in it: --erasures names the file that "sallyport knowledge erasures -o json" wrote, and they
are erased again before anything can read them.
Where the configuration has an anchor (audit.anchor), the log is compared with it. --move-anchor says that you know what is missing since the backup,
and that the gateway may go on without it.`,
		example: `sallyport restore /backups/sallyport-2026-01-31.tar --data /var/lib/sallyport --keys /safe/keys
sallyport restore whole.tar --data new --passphrase-file /safe/passphrase --move-anchor --reason "the disk of host a1 died"`, args: cobra.ExactArgs(1), prints: true,
	}, func(ctx context.Context, args []string) error {
		if move && strings.TrimSpace(reason) == "" {
			return usagef("--move-anchor needs --reason: it goes on the record")
		}
		cfg, err := daemon.LoadConfig(config)
		if err != nil {
			return unusable(err)
		}
		m, err := backup.Open(args[0])
		if err != nil {
			return err
		}
		how := backup.Restoring{Keys: keys, Actor: localPerson(), Reason: reason}
		if m.Keys && keys == "" {
			if how.Passphrase, err = c.passphrase(ctx, secret, false); err != nil {
				return err
			}
		}
		if erasures != "" {
			b, err := readRegular(erasures, maxErasures)
			if err == nil {
				var list struct{ Items *[]knowledge.Erasure }
				if err = json.Unmarshal(b, &list); err == nil && list.Items == nil {
					err = errors.New("it is not what sallyport knowledge erasures -o json wrote")
				} else if err == nil {
					how.Erasures = *list.Items
				}
			}
			if err != nil {
				return usagef("--erasures: %v", err)
			}
		}
		out := restored{}
		how.Detail = func(ctx context.Context, db *store.DB) (map[string]any, error) {
			found, ok, err := daemon.CompareAnchor(ctx, cfg, c.data, db, db.Signer().PublicKey())
			if ok {
				out.Anchor = &found
				return map[string]any{"anchor": found}, nil
			}
			if err != nil {
				fmt.Fprintf(c.err, "sallyport: %s\n", printable(err.Error()))
			}
			return nil, nil
		}
		if out.Backup, out.Closed, err = backup.Restore(ctx, args[0], c.data, how); err != nil {
			return err
		}
		if move {
			if _, err := c.moveAnchor(ctx, cfg, reason); err != nil {
				return err
			}
			out.Moved = true
		}
		return c.print(out, func(t *table) { c.told(t, args[0], out) })
	})
	f := cmd.Flags()
	f.StringVar(&keys, "keys", "", "folder with signing.key (and state.key), where the backup has no keys")
	passphraseFlag(cmd, &secret)
	f.StringVar(&config, "config", "", "configuration file, for its anchor (default: sallyport.yaml if it is there)")
	f.StringVar(&erasures, "erasures", "", "file with the documents that are to be erased again")
	must(cmd.MarkFlagFilename("erasures"))
	f.BoolVar(&move, "move-anchor", false, "move the anchor to the end of the restored log; needs --reason")
	f.StringVar(&reason, "reason", "", "why, for the record")
	must(cmd.MarkFlagDirname("keys"))
	must(cmd.MarkFlagRequired("data"))
	return cmd
}

// told says what was restored, and what a person has to know about it.
func (c *cli) told(t *table, file string, out restored) {
	t.line("%s: restored to %s", file, c.data)
	described(t, out.Backup)
	t.field("sessions closed", out.Closed)
	t.line("What was changed since %s is as it was then: tokens revoked since are good again, switches, quarantines and accepted definitions are those of then.", t.show(out.Backup.At))
	t.line("So are documents that were erased since, unless --erasures named them.")
	if out.Anchor == nil {
		return
	}
	t.line("%s", out.Anchor.String())
	switch {
	case out.Moved:
		t.line("The anchor was moved to the end of this log.")
	case !out.Anchor.Good():
		t.line("The anchor stays where it is. A person moves it with: sallyport audit anchor --move --reason TEXT --data %s", c.data)
	}
}

func (c *cli) auditAnchor() *cobra.Command {
	var config, reason string
	var move bool
	cmd := c.command(about{
		use: "anchor", short: "Compare the log with its anchor, or move the anchor",
		long: `The anchor (audit.anchor in the configuration) holds the newest signed checkpoint outside the data directory. It exits with 1 where the log does not
go on from it. --move writes the end of this log there, whatever it holds: that says that you know what is missing and that the gateway may go on
without it. It is put on record, and done while no gateway runs.`,
		example: "sallyport audit anchor\nsallyport audit anchor --move --reason \"restored after the disk died\"", prints: true,
	}, func(ctx context.Context, _ []string) error {
		cfg, err := daemon.LoadConfig(config)
		if err != nil {
			return unusable(err)
		}
		if move {
			if strings.TrimSpace(reason) == "" {
				return usagef("--move needs --reason: it goes on the record")
			}
			found, err := c.moveAnchor(ctx, cfg, reason)
			if err != nil {
				return err
			}
			return c.print(found, func(t *table) {
				t.line("%s", found.String())
				t.line("The anchor was moved to the end of this log.")
			})
		}
		found, err := c.compareAnchor(ctx, cfg)
		if err != nil {
			return err
		}
		return c.judged(found, found.Good(), func(t *table) { t.line("%s", found.String()) })
	})
	f := cmd.Flags()
	f.StringVar(&config, "config", "", "configuration file (default: sallyport.yaml if it is there)")
	f.BoolVar(&move, "move", false, "move the anchor to the end of this log; needs --reason")
	f.StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (c *cli) compareAnchor(ctx context.Context, cfg *daemon.Config) (found anchor.Finding, err error) {
	pub, err := readRegular(filepath.Join(c.data, "audit.pub"), maxSmall)
	if err != nil {
		return found, unusable(err)
	}
	r, err := store.OpenReadOnly(c.data)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	found, ok, err := daemon.CompareAnchor(ctx, cfg, c.data, r, string(pub))
	if err == nil && !ok {
		return found, unusable(fault.New(fault.ConfigurationInvalid, "The configuration has no anchor.").At("audit.anchor").Try("Name the configuration with --config."))
	}
	return found, err
}

func (c *cli) moveAnchor(ctx context.Context, cfg *daemon.Config, reason string) (found anchor.Finding, err error) {
	if err := c.hasDatabase(); err != nil {
		return found, err
	}
	db, err := store.Open(c.data, store.Options{})
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return daemon.MoveAnchor(ctx, cfg, db, c.data, localPerson(), reason)
}

// hasDatabase keeps a command from making a data directory by mistake.
func (c *cli) hasDatabase() error {
	if !store.HasDatabase(c.data) {
		return unusable(fault.New(fault.ConfigurationInvalid, "%s is not a data directory: there is no database in it.", c.data).Try("Name the directory with --data."))
	}
	return nil
}

// localPerson names who runs this command, as far as the system knows.
func localPerson() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "local:" + u.Username
	}
	return fmt.Sprintf("local:%d", os.Getuid())
}

// passphrase reads the passphrase of the keys from a file, or asks for it at a terminal; twice where it is a new one.
func (c *cli) passphrase(ctx context.Context, file string, isNew bool) (string, error) {
	if file != "" {
		b, err := readRegular(file, maxSmall)
		if err != nil {
			return "", unusable(err)
		}
		line, _, _ := strings.Cut(string(b), "\n")
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			return "", usagef("the first line of %s is empty", file)
		}
		return line, nil
	}
	in, ok := c.in.(*os.File)
	if !ok || !terminal(in) {
		return "", usagef("there is no terminal to ask for the passphrase at: give it with --passphrase-file")
	}
	lines := bufio.NewReader(in)
	ask := func(prompt string) (line string, err error) {
		fmt.Fprint(c.err, prompt)
		err = unechoed(ctx, in, func() error {
			line, err = lines.ReadString('\n')
			return err
		})
		fmt.Fprintln(c.err)
		if errors.Is(err, io.EOF) {
			err = usagef("no passphrase was given")
		}
		return strings.TrimRight(line, "\r\n"), err
	}
	first, err := ask("Passphrase of the keys: ")
	if err != nil || !isNew {
		return first, err
	}
	second, err := ask("The same again: ")
	if err == nil && first != second {
		err = usagef("these are two different passphrases")
	}
	return first, err
}
