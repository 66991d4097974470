package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mostRead bounds one text: a longer file is cut.
const mostRead = 1 << 20

// logLines are how many lines of a log are one text: an agent reads a log in parts.
const logLines = 200

// The sources of texts on a machine.
const (
	manuals = "manual pages"
	readmes = "READMEs"
	logs    = "logs"
	others  = "other documentation"
)

var (
	manual     = regexp.MustCompile(`/man[1-9][a-z]*/[^/]+\.[1-9][a-z]*$`)
	logFile    = regexp.MustCompile(`(?i)(\.log(\.[0-9]+)?$|/var/log/)`)
	document   = regexp.MustCompile(`(?i)(\.(md|markdown|txt|rst|adoc)$|/(changelog|changes|news|history|copyright|licen[sc]e|notice|authors|todo|faq)[^/]*$|^/usr/share/doc/)`)
	noDocument = regexp.MustCompile(`(?i)\.(c|h|go|js|mjs|cjs|ts|py|pl|pm|rb|sh|html?|css|json|ya?ml|xml|svg|map)$`)
)

// source is what kind of text a file is; "" for what is none of them. name has no ending of compression.
func source(name string) string {
	base := strings.ToLower(filepath.Base(name))
	switch {
	case manual.MatchString(name):
		return manuals
	case noDocument.MatchString(name):
		return ""
	case strings.HasPrefix(base, "readme"):
		return readmes
	case logFile.MatchString(name):
		return logs
	case document.MatchString(name):
		return others
	}
	return ""
}

// files collects the texts of a folder. What can't be read is left out.
func files(ctx context.Context, folder string, add func(text) error) error {
	return filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if path == folder {
				return err
			}
			return nil
		}
		name := strings.TrimSuffix(path, ".gz")
		from := source(filepath.ToSlash(name))
		if !e.Type().IsRegular() || from == "" {
			return nil
		}
		b, err := read(path)
		if err != nil || bytes.IndexByte(b, 0) >= 0 { // no text
			return nil
		}
		b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
		switch from {
		case manuals:
			b = withoutRequests(b)
		case logs:
			return parts(b, func(b []byte) error { return add(text{from, path, b}) })
		}
		return add(text{from, path, b})
	})
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(in, mostRead))
}

// parts gives the parts of a log.
func parts(b []byte, each func([]byte) error) error {
	for len(b) > 0 {
		end := 0
		for range logLines {
			next := bytes.IndexByte(b[end:], '\n')
			if next < 0 {
				end = len(b)
				break
			}
			end += next + 1
		}
		if err := each(b[:end]); err != nil {
			return err
		}
		b = b[end:]
	}
	return nil
}

var (
	request = regexp.MustCompile(`(?m)^[.'](?:\\".*|[ \t]*[A-Za-z]{1,3}\b[ \t]*)`)
	escape  = regexp.MustCompile(`\\(f(?:\[[^\]]*\]|\([A-Za-z]{2}|.)|s[-+]?[0-9]+|\((?:em|en|hy|mi)|[&%|^/,])`)
	signs   = strings.NewReplacer(`\-`, "-", `\e`, `\`, `\ `, " ", `\(aq`, "'", `\(dq`, `"`, `\(bu`, "*", `\(cq`, "'", `\(lq`, `"`, `\(rq`, `"`)
)

// withoutRequests is the source of a manual page about as a reader sees it: without the requests and escapes of its formatter.
func withoutRequests(b []byte) []byte {
	b = request.ReplaceAll(b, nil)
	return []byte(signs.Replace(string(escape.ReplaceAll(b, nil))))
}
