# `make` alone prints the manual: the text behind ## of each target.
.DEFAULT_GOAL := help
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory

SCENARIO ?= smoke
TIME     ?= 30s
SEED     ?=
RUNS     ?= 20
STEPS    ?= 60
BASE     ?=
DIR      ?=
JSON     ?=
REAL     ?=
ARGS     ?=
SETUP    ?= yes
BENCH    ?= .
COUNT    ?= 6

TOOL := go tool -modfile=tools/go.mod
# What holds state of its own between goroutines; the rest is covered by these through its callers.
RACE_PACKAGES        ?= ./devicestate/... ./outbox/... ./ingest/... ./partitions/... ./internal/...
INTEGRATION_PACKAGES ?= ./outbox/... ./ingest/... ./partitions/... ./devicestate/consumer/... ./internal/schema/... ./internal/monitor/... ./cmd/...

.PHONY: help
help: ## print this manual
	@echo 'Hubstate. Usage: make TARGET [NAME=value …]'
	@echo
	@awk -F ':.*## ' '/^[a-z\/]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo '  Settings: HUBSTATE_* in the environment (docs/cli.md); tests: HUBSTATE_TEST_* (internal/testenv/doc.go).'

.PHONY: setup
setup: ## install what `make test` needs beside Go (as root or with sudo; quick when all is there)
ifeq ($(SETUP),yes)
	@internal/testenv/setup/setup.sh
endif

.PHONY: build
build: ## compile all commands into bin/
	@mkdir -p bin
	@go build -o bin/ ./cmd/... ./loadtest

.PHONY: run
run: ## the whole pipeline on this machine; REAL=1: on real Mosquitto, Kafka, Redis; ARGS='--ephemeral …'
ifeq ($(SETUP),yes)
	@internal/testenv/setup/setup.sh $(if $(REAL),all,run)
endif
	@mkdir -p bin && go build -o bin/hub ./cmd/hub
	@exec bin/hub $(if $(REAL),--real) $(ARGS)

.PHONY: fmt
fmt: ## format all Go files
	@gofmt -w $$(git ls-files '*.go')

.PHONY: lint
lint: ## golangci-lint with the rules of the house, and the architecture test
	@$(TOOL) golangci-lint run --allow-parallel-runners
	@go test ./internal/lint/...

.PHONY: test
test: setup ## all tests, on real servers as far as they are here; SETUP=no: install nothing
	@go test -timeout 15m ./...

.PHONY: test/race
test/race: ## the tests of RACE_PACKAGES with the race detector, short variants
	@go test -race -short -timeout 20m $(RACE_PACKAGES)

.PHONY: test/integration
test/integration: setup ## the suites on real parts with PostgreSQL 15 (make test takes the newest); a missing part fails
	@CI=true HUBSTATE_TEST_POSTGRES_VERSION=15 go test -count=1 -timeout 20m $(INTEGRATION_PACKAGES)

.PHONY: test/long
test/long: setup ## the long variants of the tests too (HUBSTATE_TEST_LONG=1), minutes each
	@HUBSTATE_TEST_LONG=1 go test -count=1 -timeout 0 ./...

.PHONY: test/model
test/model: ## random histories of the outbox against a model; SEED=n repeats one, RUNS=100, STEPS=200
	@HUBSTATE_MODEL_SEED=$(SEED) HUBSTATE_MODEL_RUNS=$(RUNS) HUBSTATE_MODEL_STEPS=$(STEPS) \
		go test -count=1 -timeout 0 -run TestModel_RandomHistories ./outbox

.PHONY: test/mutants
test/mutants: ## the relay with each of its mechanisms taken out: the model must notice, within 1,020 steps; minutes
	@go test -count=1 -tags mutant -timeout 0 -run TestModel_NoticesMutants -v ./outbox

.PHONY: fuzz
fuzz: ## each fuzz target for TIME=30s
	@for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for name in $$(go test -list '^Fuzz' $$dir | grep '^Fuzz'); do \
			echo "$$dir $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(TIME) $$dir || exit 1; \
		done; \
	done

.PHONY: bench
bench: ## all benchmarks, COUNT=6 times, into bin/bench.txt; BENCH=pattern
	@mkdir -p bin
	@go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 0 ./... | tee bin/bench.txt

.PHONY: bench/compare
bench/compare: ## compare bin/bench.txt with BASE=file (benchstat)
	@test -n '$(BASE)' || { echo 'bench/compare: BASE=file is missing; try: cp bin/bench.txt base.txt; …; make bench bench/compare BASE=base.txt' >&2; exit 2; }
	@$(TOOL) benchstat $(BASE) bin/bench.txt

.PHONY: ratios
ratios: ## ours against others' in one run, median of five pairs; fails below a goal; ARGS='-only ingest -slack 0.8'
	@go run ./internal/testenv/ratios $(ARGS)

.PHONY: bench/peers
bench/peers: build ## the relay, Debezium (through Maven) and watermill-sql on the same rows; JSON=1, ARGS='--rows 50000 …'
	@cd loadtest/peers/watermill && go build -o ../../../bin/peer-watermill .
	@bin/loadtest peers $(if $(JSON),--json) $(ARGS)

.PHONY: load
load: build ## a fleet against the pipeline, nothing lost, nothing reordered; SCENARIO=smoke, JSON=1, ARGS=…
	@bin/loadtest run --scenario $(SCENARIO) $(if $(JSON),--json) $(ARGS)

.PHONY: report
report: build ## a page about the run kept in DIR= (make load ARGS='--keep DIR'), to standard output; ARGS='-o run.html'
	@test -n '$(DIR)' || { echo 'report: DIR=directory is missing; try: make load ARGS="--keep /tmp/run"; make report DIR=/tmp/run' >&2; exit 2; }
	@bin/loadtest report $(DIR) $(ARGS)

.PHONY: check/deploy
check/deploy: ## the files of deploy/: compose, manifests, units, server settings, alert rules
	@go test -count=1 -run 'Deploy|Docs' ./internal/lint
	@go test -count=1 -run 'RunsWithTheSettings|Topics|TopicSettings|MQTT_Answers' ./internal/embedded ./internal/testenv
	@if command -v promtool >/dev/null && ls deploy/prometheus/*.yml >/dev/null 2>&1; then \
		promtool check rules $$(ls deploy/prometheus/*.yml | grep -v -e _test.yml -e prometheus.yml) && \
		for file in $$(ls deploy/prometheus/*_test.yml 2>/dev/null); do promtool test rules $$file || exit 1; done; \
	fi

.PHONY: verify
verify: ## fail when something generated or tidied has drifted: formatting, go.mod, the help of the commands
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo 'not formatted; run make fmt:'; gofmt -l $$(git ls-files '*.go'); exit 1; }
	@go mod tidy -diff
	@go vet ./...
