# Everything here is plain Go; make only saves typing.
.PHONY: build test check bench fuzz openapi house module

build:
	go build -trimpath -ldflags='-s -w' -o bin/sallyport ./cmd/sallyport

# The tests that need npm or the attack cases skip with a line that says what was not checked.
test:
	go test -timeout 40m ./...

# What continuous integration runs.
check:
	test -z "$$(gofmt -l .)"
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	go test -timeout 40m ./...
	go test -race -gcflags='modernc.org/...=-race=false' -timeout 30m $$(go list ./... | grep -Ev '/(test|lab)(/|$$)') # all but SQLite, which is translated from C
	go test -run '^$$' -bench . -benchtime 1x -timeout 10m ./...

# Writes docs/openapi.json anew, after a change of the HTTP API.
openapi:
	go test ./internal/httpapi -run '^TestCommittedDocument$$' -count=1 -update

# Writes the imports in the table of docs/design.md, "The house", anew. Look at what changed: an import is a decision.
house:
	go test ./test -run '^TestHouse$$' -count=1 -update

# Sets another module path over the whole tree: make module MODULE=example.com/x
module:
	@test -n "$(MODULE)" || { echo 'say which: make module MODULE=example.com/x' >&2; exit 2; }
	@old=$$(go list -m) && pattern=$$(echo "$$old" | sed 's/[.]/\\./g') && \
	git grep -lE "(^|[^/.a-z])$$pattern([^.a-z]|$$)" | while read f; do \
	  sed -E -i.old "s#(^|[^/.a-z])$$pattern([^.a-z]|$$)#\\1$(MODULE)\\2#g" "$$f" && rm "$$f.old" || exit 1; done

# What Sallyport costs, as ratios to calling the server directly, in one run on one machine.
bench: build
	go run ./lab/bench -sallyport bin/sallyport

# Each fuzz target for a minute.
fuzz:
	@go list ./... | while read p; do \
	  for f in $$(go test -list '^Fuzz' $$p | grep ^Fuzz); do go test -run '^$$' -fuzz "^$$f$$" -fuzztime 60s $$p || exit 1; done; done
