# Nelkap's commands. `make test` is the whole gate: continuous integration runs it and nothing else (.ci/run).
# Each stage is a target of its own. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

# The server is built and tested by exactly this Go, which any Go from 1.26 on fetches by itself. The Go SDK is tested on
# the oldest Go that it supports too.
GO_SERVER := go1.27.3
GO_OLDEST := go1.26.8
export GOTOOLCHAIN := $(GO_SERVER)
# go.work is for `go test ./internal/sim` and the like from the root. What a module needs is said by its go.mod alone.
export GOWORK := off
# The version is set below, not read from the checkout, so that a build does not depend on how the source was fetched.
export GOFLAGS ?= -buildvcs=false

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The race detector needs a C compiler on most systems; everything else does without.
RACE := $(if $(shell command -v "$$(go env CC)" 2>/dev/null),-race)
ifeq ($(RACE),)
  $(info No C compiler found: Go tests run without the race detector. Install gcc or clang for the whole gate.)
endif
GO_TEST := go test $(RACE) -timeout 10m
GO_TOOL := go tool -modfile=$(CURDIR)/tools/go.mod

# What there is. A stage whose folder is absent says so and passes.
# The examples' modules; what npm has installed there is none of ours.
ours         = $(filter-out examples/node_modules/%,$(patsubst %/$(1),%,$(wildcard examples/$(1) examples/*/$(1) examples/*/*/$(1))))
GO_EXAMPLES  := $(call ours,go.mod)
NPM_EXAMPLES := $(call ours,package.json)
MODULES      := . $(patsubst %/go.mod,%,$(wildcard sdk/go/go.mod internal/sim/go.mod e2e/go.mod bench/go.mod deploy/go.mod)) $(GO_EXAMPLES)
TYPESCRIPT   := $(patsubst %/package.json,%,$(wildcard sdk/typescript/package.json))

stage   = @printf '\n== %s\n' '$(1)'
absent  = @printf '\n== %s: nothing here yet\n' '$(1)'
# $(call each,folders,command): the command in each folder; the first failure stops.
each    = @for d in $(1); do [ "$$d" = . ] || echo "-- $$d"; (cd "$$d" && $(2)); done

.PHONY: help test quick build pack demo bench chaos fuzz mutants fmt generate clean \
  fmt-check lint rules tidy-check generate-check \
  test-go powercut test-deploy test-sdk-go test-sdk-typescript test-sim test-e2e test-examples

help: ## lists the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "make %-20s %s\n", $$1, $$2 }'

# In this order: what fails fastest comes first. One at a time, also under -j: stages share the cores and the caches.
GATE := fmt-check lint rules tidy-check generate-check test-go powercut test-deploy test-sdk-go test-sdk-typescript test-sim test-e2e test-examples
test: ## the whole gate
	@for stage in $(GATE); do $(MAKE) "$$stage"; done
	@printf '\n== all passed\n'

quick: ## the inner loop: vet and short tests of the server and the Go SDK
	$(call stage,quick)
	$(call each,$(filter . sdk/go,$(MODULES)),go vet ./... && go test -short -timeout 2m ./...)

fmt: ## formats every Go file (TypeScript: npm run format in sdk/typescript)
	@$(GO_TOOL) golangci-lint fmt ./...

fmt-check: ## says which Go files are not formatted
	$(call stage,format)
	@$(GO_TOOL) golangci-lint fmt --diff ./... || { echo 'Not formatted: run make fmt.'; exit 1; }

lint: ## static checks of every Go module
	$(call stage,lint)
	$(call each,$(MODULES),$(GO_TOOL) golangci-lint run --allow-parallel-runners ./...)

rules: ## the house rules: imports, sizes, words
	$(call stage,house rules)
	@go test -count=1 ./internal/archtest/

tidy-check: ## go.mod and go.sum hold what is used and nothing else
	$(call stage,modules tidy)
	$(call each,$(MODULES),go mod tidy -diff || { echo "Not tidy: run go mod tidy (in $$d)."; exit 1; })

generate: ## writes the generated files anew
	@go generate ./...

generate-check: ## generated files are those that their sources make
	$(call stage,generated files)
	@scripts/generate-check

test-go: ## the server's tests
	$(call stage,Go tests)
	@scripts/programs
	@$(GO_TEST) $$(go list ./... | grep -v /internal/archtest) # the house rules are a stage of their own

# Without the race detector: nothing here runs beside anything else, and it would take ten times as long.
CUTS ?= 300
SEED ?= 1
powercut: ## cuts the power from the embedded store, CUTS times (docs/internals/power-cut.md)
	$(call stage,power cuts)
	@go test -timeout 60m -count=1 ./internal/store/sqlite -run PowerGoes -v -cuts $(CUTS) -seed $(SEED)

# Without the race detector: what is read here is files, and what they are read with is large.
ifneq ($(wildcard deploy/go.mod),)
test-deploy: ## the image, the compose files, the chart and the unit, each by its own tool's parser
	$(call stage,deploying)
	@scripts/programs
	@cd deploy && go test -count=1 -timeout 10m ./...
else
test-deploy:
	$(call absent,deploying)
endif

ifneq ($(wildcard sdk/go/go.mod),)
test-sdk-go: ## the Go SDK's tests, on the newest and the oldest Go that it supports
	$(call stage,Go SDK tests on $(GO_SERVER))
	@cd sdk/go && $(GO_TEST) ./...
	$(call stage,Go SDK tests on $(GO_OLDEST))
	@cd sdk/go && GOTOOLCHAIN=$(GO_OLDEST) $(GO_TEST) ./...
else
test-sdk-go:
	$(call absent,Go SDK tests)
endif

# npm writes this file last when it installs.
INSTALLED := node_modules/.package-lock.json
%/$(INSTALLED): %/package.json %/package-lock.json
	@cd $* && npm ci --no-audit --no-fund --loglevel=error && touch $(INSTALLED)

ifneq ($(TYPESCRIPT),)
test-sdk-typescript: sdk/typescript/$(INSTALLED) ## the TypeScript SDK: build, lint, format, tests
	$(call stage,TypeScript SDK: build lint format tests)
	@cd sdk/typescript && npm run --silent build && npm run --silent lint && npm run --silent format:check
	@cd sdk/typescript && npm test --silent
else
test-sdk-typescript:
	$(call absent,TypeScript SDK tests)
endif

ifneq ($(wildcard internal/sim/go.mod),)
test-sim: ## the simulation, on the seeds that are kept and a few new ones
	$(call stage,simulation)
	@cd internal/sim && $(GO_TEST) ./...
	$(call stage,simulation: a seed gives the same trace)
	@cd internal/sim && go test -run SameTrace .

SEEDS ?= 10000
STORE ?= memory
FORM ?= whole
sim: ## the simulation's long form, on all cores: make sim SEEDS=100000 STORE=sqlite, or FORM=nodes, FORM=swept, FORM=stale, FORM=broad, FORM=changing, FORM=locked
	@mkdir -p bin && cd internal/sim && go test -c -o ../../bin/sim.test .
	@cd internal/sim && $(if $(wildcard /dev/shm),TMPDIR=/dev/shm) ../../bin/sim.test -test.run '^TestManySeeds$$' -test.timeout 0 -seeds $(SEEDS) -store $(STORE) -form $(FORM)
else
test-sim sim:
	$(call absent,simulation)
endif

ifneq ($(wildcard e2e/go.mod),)
test-e2e: build $(addsuffix /$(INSTALLED),$(TYPESCRIPT) $(wildcard examples)) ## the built binary and real apps, killed at random moments; several nodes on Postgres; the examples
	$(call stage,end to end)
	@scripts/programs
	@cd sdk/typescript && npm run --silent build
	@cd e2e && $(GO_TEST) -count=1 -timeout 20m ./...

# One server on the embedded store, or with STORE=postgres three nodes on one Postgres, which are killed until RUNS runs have ended, too.
SEVERAL = $(filter postgres,$(STORE))
KILLS ?= $(if $(SEVERAL),100,1000)
RUNS ?= 0
chaos: build $(addsuffix /$(INSTALLED),$(TYPESCRIPT)) ## the long form of the kill tests: make chaos KILLS=10000 SEED=1, or STORE=postgres RUNS=5000
	$(call stage,$(KILLS) kills and the stops between them$(if $(SEVERAL), on Postgres))
	@cd sdk/typescript && npm run --silent build
	$(if $(SEVERAL),@scripts/programs)
	@cd e2e && E2E_CHAOS_KILLS=$(KILLS) E2E_CHAOS_RUNS=$(RUNS) E2E_SEED=$(SEED) go test -count=1 -timeout 0 -parallel 8 \
	  -run '^$(if $(SEVERAL),TestSeveralNodesLose,TestWhateverIsKilledOrFrozen)'
else
test-e2e chaos:
	$(call absent,end to end)
endif

ifneq ($(GO_EXAMPLES)$(NPM_EXAMPLES),)
test-examples: $(addsuffix /$(INSTALLED),$(TYPESCRIPT) $(NPM_EXAMPLES)) ## every example builds and passes its tests
	$(call stage,examples)
	@cd sdk/typescript && npm run --silent build
	$(call each,$(GO_EXAMPLES),go vet ./... && go test ./...)
	$(call each,$(NPM_EXAMPLES),npm test --silent)
else
test-examples:
	$(call absent,examples)
endif

ifneq ($(wildcard cmd/nelkap),)
build: ## bin/nelkap, a static binary
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/nelkap ./cmd/nelkap
	@echo 'built bin/nelkap $(VERSION)'
else
build:
	$(call absent,build)
endif

pack: sdk/typescript/$(INSTALLED) ## bin/nelkap.tgz, the TypeScript SDK as npm would publish it
	@mkdir -p bin && cd sdk/typescript && npm run --silent build && npm pack --silent --pack-destination ../../bin >/dev/null
	@mv bin/nelkap-*.tgz bin/nelkap.tgz && echo 'built bin/nelkap.tgz'

demo: build ## runs a workflow, kills the app in the middle of it, and shows it going on
	$(if $(wildcard examples/demo),@cd examples/demo && go run .,$(call absent,demo))

FUZZTIME ?= 30s
fuzz: ## runs each fuzz target for FUZZTIME; make test plays only what is kept in testdata/fuzz
	$(call stage,fuzz targets for $(FUZZTIME) each)
	@scripts/fuzz $(FUZZTIME) . $(filter sdk/go,$(MODULES))

MUTANTS ?=
mutants: ## puts deliberate faults into the code, each of which a test must see; MUTANTS=pattern tries some (docs/internals/mutants.md)
	$(call stage,mutants)
	@go run ./scripts/mutants -only '$(MUTANTS)'

bench: build ## prints the figures of docs/internals/benchmarks.md; STORE=postgres those of docs/internals/scale.md
	$(if $(wildcard bench/go.mod),@cd bench && go run . -store $(if $(filter postgres,$(STORE)),postgres,embedded),$(call absent,bench))

clean: ## removes what was built and installed
	@rm -rf bin coverage $(addsuffix /dist,$(TYPESCRIPT) $(NPM_EXAMPLES)) $(addsuffix /node_modules,$(TYPESCRIPT) $(NPM_EXAMPLES))
