SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:

.PHONY: help demo test test-all run-test run-test-all bench bench-quick bench-large docs playground reports soak long lint images release

help: ## What make can do.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## The main job, in memory.
	go run ./examples/quickstart

# make prints a verdict of failure itself, so that it is the last line.
verdict := $(if $(filter test test-all,$(MAKECMDGOALS)),$(shell mktemp))

test: run-test ## What has to pass before a push.
	@$(call judge)

test-all: run-test-all ## The same with the race detector, 32 bits, the oldest clients, every mutant, the faults and the counts of instructions.
	@$(call judge)

run-test run-test-all: run-%:
	@.ci/test $* $(verdict)

judge = $(if $(shell cat $(verdict)),$(error $(shell cat $(verdict); rm $(verdict))))rm $(verdict)

bench: ## Every benchmark, docs/performance.md, and a part of README.md: 21 minutes.
	cd bench && go run ./run full

bench-quick: ## What docs/performance.md compares, in 4 minutes.
	cd bench && go run ./run quick

bench-large: ## Memory stores with millions of keys, added to the results of the others.
	cd bench && go run ./run large

docs: ## The pictures of the documentation, which docs/charts draws.
	cd docs/charts && go run .

playground: ## A page to compare algorithms on the same traffic, on http://127.0.0.1:8000.
	cd docs/playground && go run .

reports: images ## docs/conformance: 4 minutes on two idle cores.
	cd conformance/integration && raw=$$(mktemp -d) && trap 'rm -r "$$raw"' EXIT && \
		WEIR_REQUIRE_DOCKER=1 WEIR_PROGRESS=1 WEIR_REPORTS=$$raw \
		go test -short -count=1 -parallel 16 -timeout 40m -run 'TestMatrix|TestPostgres$$' && \
		go run ./reports "$$raw"

# How long make soak runs, and its seed; 0 means a random one.
TIME ?= 5m
SEED ?= 0

soak: images ## Random clients and faults on a cluster, and conformance/reports/soak.md: TIME, by default 5m.
	cd conformance/integration && WEIR_REQUIRE_DOCKER=1 go test -count=1 -timeout 0 -run 'TestSoak$$' \
		-soak $(TIME) -soak.seed $(SEED) -soak.report ../reports/soak.md

long: images ## What make test-all tries a random share of, in full, long histories, the race detector on servers, and go vet for 32 bits.
	WEIR_LONG=1 .ci/lint
	cd conformance/integration && WEIR_REQUIRE_DOCKER=1 go test -race -count=1 -parallel 16 -timeout 60m .
	WEIR_LONG=1 WEIR_HISTORIES=25000 go test -count=1 -parallel 8 -timeout 0 -v \
		-run 'TestMutants|TestDirectIsEval|TestHistories' . ./conformance/... | grep -vE '^ +--- PASS|^ *=== '

lint: ## Every static check of every module.
	.ci/lint

images: ## The images of the servers that the tests start.
	conformance/integration/images.sh

# For example v0.1.0. With TAG=1, the tags are made too.
VERSION ?=
TAG ?=

release: ## Check that VERSION can be released, or with TAG=1, release it: see docs/versioning.md.
	$(if $(TAG),.ci/run && $(MAKE) long)
	.ci/release '$(VERSION)' $(if $(TAG),tag)
