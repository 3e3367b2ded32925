SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:

# How many times make bench runs each benchmark.
BENCH_COUNT ?= 10

.PHONY: demo test servers test-root test-bench test-docs test-integration bench docs lint images

demo: ## The main job, in memory.
	go run ./examples/quickstart

test: test-root servers test-bench test-docs test-integration

test-root:
	go test -race -count=1 ./...

# The images of the servers, if a Docker engine answers.
servers:
	@if docker version >/dev/null 2>&1; then \
		conformance/integration/images.sh; \
	elif [[ "$${WEIR_REQUIRE_DOCKER:-}" == 1 ]]; then \
		echo 'make test: no Docker engine answers, and WEIR_REQUIRE_DOCKER is 1' >&2; exit 1; \
	else \
		echo 'make test: no Docker engine answers: the tests on servers in containers are skipped'; \
	fi

test-bench: servers
	cd bench && go vet ./... && go test -count=1 ./...

test-docs:
	cd docs/charts && go vet ./... && go test -count=1 ./...

# The servers of the matrix are one machine's load, hence -p 1; most tests wait most
# of the time, hence -parallel 4.
test-integration: servers
	cd conformance/integration && go vet ./... && go test -race -count=1 -p 1 -parallel 4 -timeout 30m ./...
	@echo 'the same matrix, with the oldest clients:'
	cd conformance/integration && go test -modfile=oldest.mod -count=1 -parallel 4 -timeout 30m .
	@awk '{ n[$$4]++ } END { printf "manifest: %d of %d rules passed, %d skipped as declared, %d not run\n", \
		n["passed"], NR, n["skipped:"], n["not"] }' conformance/integration/manifest.txt

# A round runs every benchmark once: rounds, unlike -count, run what is compared
# side by side, so that a machine that slows down slows all of it. Bytes do not vary.
bench:
	cd bench && go test -c -o bench.test && \
	for ((i = 0; i < $(BENCH_COUNT); i++)); do ./bench.test -test.run '^$$' -test.bench . -test.skip Bytes -test.timeout 0; done | tee latest.txt && \
	./bench.test -test.run '^$$' -test.bench Bytes -test.timeout 0 | tee -a latest.txt

docs: ## The pictures of docs/algorithms.md.
	cd docs/charts && go run .

lint:
	.ci/lint

images: ## The images of the servers that test-integration starts.
	conformance/integration/images.sh
