# mmb: everything a person or CI runs. `make help` lists the targets.

CARGO  ?= cargo
PYTHON ?= /usr/bin/python3
TARGET := $(or $(CARGO_TARGET_DIR),target)
MMB    := $(TARGET)/release/mmb

# Of the property tests: the same cases in each run, so that what fails comes from the change that is tested.
SEED ?= 1
FUZZ_SECONDS ?= 30
# Targets of crates without unsafe code run without AddressSanitizer, several times as fast.
FUZZ_PLAIN := config entries http import lang netlink policy quic saved session tls
SOAK_SECONDS ?= 3600
SOAK_OBJECTS ?= 100000

.DEFAULT_GOAL := help
.PHONY: book check-fresh build-nf check-newcomer check-reproducible deb deny miri release sanitize sbom soak deps build test test-rust test-nf test-e2e demo fmt lint clean fuzz bench bench-full bench-check bench-acl bench-route bench-chains help

deps: ## install the Debian packages that building, testing and the demo need (root)
	@tools/install-deps

build: ## build the release binary
	$(CARGO) build --release --package mmb

test: deps test-rust test-nf test-e2e ## install what is needed, then all tests: unit, property, doc, end-to-end (root)

test-rust: ## unit, property and doc tests; SEED=random draws new random cases, RUST=--rerun runs what fails once more
	$(if $(filter random,$(SEED)),,PROPTEST_RNG_SEED=$(SEED)) CARGO=$(CARGO) tools/test-rust $(RUST)

# A workspace of its own, as a user's would be; a directory of its own would only compile the same libraries twice.
NF := --locked --manifest-path examples/nf-hello/Cargo.toml --target-dir $(abspath $(TARGET))

build-nf: ## the network function of docs/nf-guide.md: build it and its tests
	$(CARGO) test $(NF) --no-run

test-nf: ## the network function of docs/nf-guide.md: build it, test it, run a capture through it
	$(CARGO) test $(NF)

test-e2e: ## real traffic in network namespaces; E2E="-k vlan" narrows it
	$(CARGO) build --profile e2e --package mmb
	MMB_BIN=$(abspath $(TARGET)/e2e/mmb) PYTHON=$(PYTHON) tools/test-e2e $(E2E)

demo: deps build ## watch mmb work between a real client and a real server (root)
	@MMB_BIN=$(abspath $(MMB)) $(PYTHON) tools/demo

fmt: ## format the code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path bench/acl/Cargo.toml
	$(CARGO) fmt --manifest-path bench/route/Cargo.toml
	$(CARGO) fmt --manifest-path examples/nf-hello/Cargo.toml

lint: ## formatting, clippy with warnings as errors, layers of the crates, structure, prose
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path bench/acl/Cargo.toml --check
	$(CARGO) fmt --manifest-path bench/route/Cargo.toml --check
	$(CARGO) fmt --manifest-path examples/nf-hello/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	tools/check-layers
	tools/check-dependencies
	tools/check-structure
	tools/check-prose

check-fresh: ## check in a pristine Debian 12 root that `make deps` installs all that the tests import (root)
	tools/check-fresh

check-newcomer: ## check that clone, build, tutorial and cookbook take a newcomer less than 15 minutes (root)
	tools/check-newcomer

# cargo-fuzz wants the sanitizer flags that are unstable in rustc; RUSTC_BOOTSTRAP spares a second toolchain.
fuzz: ## run every fuzz target for FUZZ_SECONDS (30)
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	@set -e; for target in $$($(CARGO) fuzz list); do \
	  echo "== $$target"; \
	  case " $(FUZZ_PLAIN) " in *" $$target "*) sanitizer=none;; *) sanitizer=address;; esac; \
	  RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run --sanitizer $$sanitizer $$target -- \
	    -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 -detect_leaks=0; \
	done

deny: ## cargo-deny: advisories of rustsec.org, licences, bans, sources (installs cargo-deny; network)
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny --all-features check

sbom: ## the crates that the daemon is linked from, as CycloneDX: mmb.cdx.json
	tools/check-dependencies --sbom > mmb.cdx.json

miri: ## tests of the core crates under Miri: undefined behaviour (nightly toolchain with miri and rust-src)
	tools/miri

sanitize: ## tests and the daemon under AddressSanitizer, tests under ThreadSanitizer (rust-src; root)
	tools/sanitize address tests
	tools/sanitize address daemon
	tools/sanitize thread tests

release: ## build the release binary so that equal sources and tools give equal bytes
	@tools/build-release

deb: ## the Debian package, in target/debian
	@tools/build-deb

book: ## the documentation as a site, in target/book (installs mdbook if it is missing; network)
	@command -v mdbook >/dev/null || $(CARGO) install --locked mdbook
	@tools/build-book

check-reproducible: ## check that two release builds in different directories have the same bytes
	tools/check-reproducible

soak: build ## SOAK_SECONDS (3600) of everything at once, then SOAK_OBJECTS (100000) of each object, then new random cases (root)
	MMB_BIN=$(abspath $(MMB)) MMB_SOAK_SECONDS=$(SOAK_SECONDS) $(PYTHON) -m pytest tests/e2e/sessions/test_lasting.py
	MMB_BIN=$(abspath $(MMB)) MMB_SOAK=$(SOAK_OBJECTS) $(PYTHON) -m pytest tests/e2e/sessions/test_soak.py
	MMB_BIN=$(abspath $(MMB)) MMB_SOAK=1 $(PYTHON) -m pytest -rP tests/e2e/sessions/test_processes.py tests/e2e/brokers/test_broker_processes.py -k faults
	MMB_FAULTS=500 $(CARGO) test --locked -p mmb-fabric --test process -- random_faults
	$(MAKE) test-rust SEED=random

bench: build ## the papers' experiments beside nftables, iptables, XDP, HAProxy, nginx: 20 minutes; docs/performance.md (root)
	bench/install-peers
	MMB_BIN=$(abspath $(MMB)) bench/run

bench-full: build ## the same with more places and more rounds: about 50 minutes; bench/run --resume goes on if it is cut off
	bench/install-peers
	MMB_BIN=$(abspath $(MMB)) bench/run --full

bench-check: build ## what a packet costs, beside the committed results: says what got worse by more than 15 %
	MMB_BIN=$(abspath $(MMB)) bench/run --check

bench-acl: ## the classifier beside DPDK's rte_acl; SETS=DIRECTORY has the filter sets of ClassBench
	bench/acl/run $(SETS)

bench-route: build ## routing beside DPDK's ip4_lookup and ip4_rewrite, rte_fib and rte_lpm
	MMB_BIN=$(abspath $(MMB)) bench/route/run

bench-chains: build ## functions of a service chain together, and each with a session table of its own
	MMB_BIN=$(abspath $(MMB)) bench/chains/run

clean: ## remove everything that was built
	$(CARGO) clean
	rm -rf fuzz/target bench/acl/target bench/route/target bench/kernel/target examples/nf-hello/target

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
