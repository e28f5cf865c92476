# sandboxd: `make` lists what can be made.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := .bin
TEST_TIMEOUT ?= 40m
GOLANGCI_VERSION := v2.9.0
GOLANGCI := $(BIN)/golangci-lint-$(GOLANGCI_VERSION)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: images
images: ## Make the engine images that are missing: pulled, or built from Debian packages
	@images/build.sh

.PHONY: demo
demo: ## A tour on real containers: a developer agent gets databases, uses them, is done
	@$(MAKE) --no-print-directory -j2 images build-demo # side by side: much of making images is waiting
	@$(BIN)/demo -sandboxd $(BIN)/sandboxd

.PHONY: build-demo
build-demo:
	@CGO_ENABLED=0 go build -o $(BIN)/ ./cmd/sandboxd ./cmd/demo

.PHONY: up
up: images ## Bring up sandboxd with its own stores: two workers and a gateway (docker-compose.yml)
	@scripts/up.sh

.PHONY: down
down: ## Take it down again: sandboxes, data and passwords too
	@scripts/down.sh

.PHONY: bench
bench: images build build-bench ## Measure what users wait for, beside other tools, 15 min; overwrites docs/benchmarks.md (BENCH= for flags)
	@$(BIN)/bench -out docs/benchmarks.md $(BENCH)

# The peers and the plot are a module of their own, so that the product needs nothing of theirs.
.PHONY: build-bench
build-bench:
	cd bench && CGO_ENABLED=0 go build -o ../$(BIN)/bench-peers ./peers && CGO_ENABLED=0 go build -o ../$(BIN)/bench-plot ./plot

.PHONY: chaos
chaos: images build ## Ten minutes of faults on real processes (CHAOS="-engine real -mode flush -seed 1": docs/reliability.md)
	@$(BIN)/chaos -sandboxd $(BIN)/sandboxd $(CHAOS)

.PHONY: mutants
mutants: images build ## Break the protocol in every way of a catalogue; the tests must notice each (MUTANTS= for flags)
	@$(BIN)/mutants $(MUTANTS)

.PHONY: soak
soak: images build ## 100,000 requests on one system: Redis's memory, goroutines and files stay flat (SOAK= for flags)
	@$(BIN)/soak $(SOAK)

# The matrix that `make test` runs kills at each point in one scenario or two; this one in all of them, and prints a row for each.
.PHONY: crash
crash: test-engine ## Kill sandboxd at every point before and after every call, real containers included; prints a table
	cd cmd/sandboxd/failpoint && SANDBOXD_CRASH=all go test -count=1 -timeout 60m # from within, so that its table is shown

.PHONY: build
build: ## Build every program into .bin: sandboxd, sandbox and those that demo, measure and test
	CGO_ENABLED=0 go build -o $(BIN)/ ./cmd/...

# Without Docker the tests that need it skip and say so; REQUIRE_DOCKER=1 makes its absence a failure.
.PHONY: test-engine
test-engine:
	@if docker version >/dev/null 2>&1; then images/build.sh; \
	elif [ -n "$${REQUIRE_DOCKER:-}" ]; then echo "the container engine does not answer, and REQUIRE_DOCKER is set" >&2; exit 1; \
	else echo "the container engine does not answer: tests that need it will skip"; fi

.PHONY: test
test: test-engine ## Everything a change must pass (REQUIRE_DOCKER=1: fail without Docker)
	go test -count=1 -timeout $(TEST_TIMEOUT) ./...

.PHONY: test-short
test-short: ## The tests that need no Docker, under a minute
	go test -short -parallel 8 -p 3 ./worker ./verbs ./... # most of their time is waiting; those that wait longest begin first

.PHONY: race
race: test-engine ## All tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race -count=1 -timeout 30m ./...

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION), once"
	GOBIN=$(CURDIR)/$(BIN)/.install go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(BIN)/.install/golangci-lint $@ && rmdir $(BIN)/.install

.PHONY: lint
lint: $(GOLANGCI) ## go vet and golangci-lint, the import rules among them
	go vet ./...
	go vet -tags failpoints ./cmd/sandboxd
	cd bench && go vet ./...
	$(GOLANGCI) run ./...
	$(GOLANGCI) run --build-tags failpoints ./cmd/sandboxd

.PHONY: fmt
fmt: $(GOLANGCI) ## Format the Go code
	$(GOLANGCI) fmt ./...
