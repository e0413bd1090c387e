# mmb: everything a person or CI runs. `make help` lists the targets.

CARGO  ?= cargo
PYTHON ?= /usr/bin/python3
TARGET := $(or $(CARGO_TARGET_DIR),target)
MMB    := $(TARGET)/release/mmb

FUZZ_SECONDS ?= 30

.DEFAULT_GOAL := help
.PHONY: deps build test test-rust test-e2e demo fmt lint clean fuzz bench-acl bench-route help

deps: ## install the Debian packages that building, testing and the demo need (root)
	@tools/install-deps

build: ## build the release binary
	$(CARGO) build --release --package mmb

test: test-rust test-e2e ## unit, property, doc and end-to-end tests (the latter as root)

test-rust: ## unit, property and doc tests
	$(CARGO) test --workspace

test-e2e: build ## real traffic in network namespaces; E2E="-k vlan" narrows it
	MMB_BIN=$(abspath $(MMB)) $(PYTHON) -m pytest tests/e2e $(E2E)

demo: deps build ## watch mmb work between a real client and a real server (root)
	@MMB_BIN=$(abspath $(MMB)) $(PYTHON) tools/demo

fmt: ## format the code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path bench/acl/Cargo.toml
	$(CARGO) fmt --manifest-path bench/route/Cargo.toml

lint: ## formatting, clippy with warnings as errors, the layering of the crates
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path bench/acl/Cargo.toml --check
	$(CARGO) fmt --manifest-path bench/route/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	tools/check-layers

# cargo-fuzz wants the sanitizer flags that are unstable in rustc; RUSTC_BOOTSTRAP spares a second toolchain.
fuzz: ## run every fuzz target for FUZZ_SECONDS (30)
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	@set -e; for target in $$($(CARGO) fuzz list); do \
	  echo "== $$target"; \
	  RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096; \
	done

bench-acl: ## the classifier beside DPDK's rte_acl; SETS=DIRECTORY has the filter sets of ClassBench
	bench/acl/run $(SETS)

bench-route: build ## routing beside DPDK's ip4_lookup and ip4_rewrite, rte_fib and rte_lpm
	MMB_BIN=$(abspath $(MMB)) bench/route/run

clean: ## remove everything that was built
	$(CARGO) clean
	rm -rf fuzz/target bench/acl/target bench/route/target

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
