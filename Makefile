SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:

# How many times make bench runs each benchmark.
BENCH_COUNT ?= 10

.PHONY: demo test test-all run-test run-test-all bench docs lint images

demo: ## The main job, in memory.
	go run ./examples/quickstart

# make prints a verdict of failure itself, so that it is the last line.
verdict := $(if $(filter test test-all,$(MAKECMDGOALS)),$(shell mktemp))

test: run-test ## What has to pass before a push.
	@$(call judge)

test-all: run-test-all ## The same with the race detector, the oldest clients, every mutant and the faults.
	@$(call judge)

run-test run-test-all: run-%:
	@.ci/test $* $(verdict)

judge = $(if $(shell cat $(verdict)),$(error $(shell cat $(verdict); rm $(verdict))))rm $(verdict)

# A round runs every benchmark once: rounds, unlike -count, run what is compared
# side by side, so that a machine that slows down slows all of it. Bytes do not vary.
bench:
	cd bench && go test -c -o bench.test && \
	for ((i = 0; i < $(BENCH_COUNT); i++)); do ./bench.test -test.run '^$$' -test.bench . -test.skip Bytes -test.timeout 0; done | tee latest.txt && \
	./bench.test -test.run '^$$' -test.bench Bytes -test.timeout 0 | tee -a latest.txt

docs: ## The pictures of docs/reference/algorithms.md.
	cd docs/charts && go run .

lint:
	.ci/lint

images: ## The images of the servers that the tests start.
	conformance/integration/images.sh
