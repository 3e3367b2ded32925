SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:

.PHONY: demo test test-all run-test run-test-all bench bench-quick bench-large docs reports soak lint images

demo: ## The main job, in memory.
	go run ./examples/quickstart

# make prints a verdict of failure itself, so that it is the last line.
verdict := $(if $(filter test test-all,$(MAKECMDGOALS)),$(shell mktemp))

test: run-test ## What has to pass before a push.
	@$(call judge)

test-all: run-test-all ## The same with the race detector, the oldest clients, every mutant, the faults and the counts of instructions.
	@$(call judge)

run-test run-test-all: run-%:
	@.ci/test $* $(verdict)

judge = $(if $(shell cat $(verdict)),$(error $(shell cat $(verdict); rm $(verdict))))rm $(verdict)

bench: ## Every benchmark, docs/performance.md and a part of README.md: 15 minutes.
	cd bench && go run ./run full

bench-quick: ## What docs/performance.md compares, in 3 minutes.
	cd bench && go run ./run quick

bench-large: ## Memory stores with millions of keys, added to the results of the others.
	cd bench && go run ./run large

docs: ## The pictures of docs/reference/algorithms.md.
	cd docs/charts && go run .

reports: images ## docs/conformance and a table of README.md: 4 minutes on two idle cores.
	cd conformance/integration && raw=$$(mktemp -d) && trap 'rm -r "$$raw"' EXIT && \
		WEIR_REQUIRE_DOCKER=1 WEIR_PROGRESS=1 WEIR_REPORTS=$$raw \
		go test -short -count=1 -parallel 16 -timeout 40m -run 'TestMatrix|TestPostgres$$' && \
		go run ./reports "$$raw"

# How long make soak runs, and its seed; 0 means a random one.
TIME ?= 5m
SEED ?= 0

soak: images ## Random clients and faults on a cluster, and docs/reference/soak.md: TIME, by default 5m.
	cd conformance/integration && WEIR_REQUIRE_DOCKER=1 go test -count=1 -timeout 0 -run 'TestSoak$$' \
		-soak $(TIME) -soak.seed $(SEED) -soak.report ../../docs/reference/soak.md

lint:
	.ci/lint

images: ## The images of the servers that the tests start.
	conformance/integration/images.sh
