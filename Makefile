# What a person types. Everything here works in a clean clone and is quick when there is nothing to do.

CARGO ?= cargo
# More arguments for the server, or for the benchmarks: make serve ARGS='--http 127.0.0.1:5000'
ARGS ?=
# What a branch is compared with: make bench-check BASE=v0.1.0
BASE ?= origin/main
# What packages are for: make dist ARCH=aarch64 builds them on another machine, and runs the binary
# there by an emulator, for its manual.
ARCH ?= $(shell uname -m)
EMULATOR = qemu-$(ARCH)-static
# Relative relocations are packed in packages; the C library has read such since 2.36. That needs lld:
# the default of rustc on x86_64, and it comes with rustc for other processors.
DIST_LINK = -C link-arg=-Wl,-z,pack-relative-relocs
DIST_LLD = -C link-arg=-fuse-ld=lld \
  -C link-arg=-B$$(rustc --print sysroot)/lib/rustlib/$$(rustc --print host-tuple)/bin/gcc-ld
# One fuzz target for so long, or all with FUZZ_RUNS inputs each: make fuzz TARGET=pg_sql FUZZ_SECONDS=600
TARGET ?=
FUZZ_SECONDS ?= 60

.DEFAULT_GOAL := help
# Tests of one topic each, of `crates/cove/tests/full`.
FULL_PARTS := oracle s3 schemathesis spark
.PHONY: docs console console-check sdk sdk-python sdk-typescript serve demo release dist check test test-full fuzz lint fmt bench bench-check help deps $(FULL_PARTS:%=test-%)

# What packs the Python SDK, in the versions that its tests use.
SDK_PYTHON_TOOLS = $(shell grep -E '^(build|hatchling)==' sdk/python/requirements-dev.txt)

# Tests at a time: a third of the end-to-end tests' time is waiting.
TEST_THREADS ?= $(shell echo $$(($$(nproc) + 1)))
# Runs the command behind it and names the slowest tests. Not by `cargo run`, whose variables would
# reach the tests.
SLOWEST = $(CARGO) build --quiet -p xtask && $${CARGO_TARGET_DIR:-target}/debug/xtask slowest
# Crates with unit tests that need neither root nor a server, and what of them does.
CHECKED := api console cove gateway iceberg node pool sessions site wire xtask
UNCHECKED := store::tests events::tests::servers audit::tests

serve: ## build quickly and start on this machine
	$(CARGO) build --profile serve -p cove
	./target/serve/cove serve $(ARGS)

demo: ## build quickly and start a server with something on it to look at
	$(CARGO) build --profile serve -p cove
	./target/serve/cove demo --serve $(ARGS)

release: ## build for speed: target/release/cove is what to install
	$(CARGO) build --release -p cove

dist: ## make packages in target/dist: archive, .deb, .rpm, SBOM, checksums, install.sh; ARCH=aarch64
ifeq ($(ARCH),$(shell uname -m))
	$(CARGO) rustc --profile dist -p cove --bin cove -- $(DIST_LINK)
	packaging/package --binary $${CARGO_TARGET_DIR:-target}/dist/cove --out target/dist/packages
else
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	  $(CARGO) rustc --profile dist --target $(ARCH)-unknown-linux-gnu -p cove --bin cove -- $(DIST_LLD) $(DIST_LINK)
	QEMU_LD_PREFIX=/usr/$(ARCH)-linux-gnu \
	  packaging/package --binary $${CARGO_TARGET_DIR:-target}/$(ARCH)-unknown-linux-gnu/dist/cove \
	  --target $(ARCH)-unknown-linux-gnu --run $(EMULATOR) --out target/dist/packages
endif

docs: ## write the documentation to target/docs, to be read without a server
	$(CARGO) build --quiet --profile serve -p cove
	./target/serve/cove docs --out target/docs

console: ## build the web console's files anew: needs Node
	cd crates/console/ui && npm ci --ignore-scripts --no-audit --no-fund --silent && node build.mjs

console-check: ## compare the committed files of the console with what their sources make
	cd crates/console/ui && npm ci --ignore-scripts --no-audit --no-fund --silent && npx tsc --noEmit && node build.mjs --check

# Packages of the SDKs, one target for each: what is to be published.
sdk: sdk-python sdk-typescript ## pack the SDKs into target/sdk: needs Python and Node

sdk-python:
	@python3 -m venv target/sdk-tools
	@target/sdk-tools/bin/python -m pip install --quiet --disable-pip-version-check $(SDK_PYTHON_TOOLS)
	target/sdk-tools/bin/python -m build --no-isolation --outdir target/sdk sdk/python

sdk-typescript:
	@mkdir -p target/sdk
	cd sdk/typescript && npm ci --ignore-scripts --no-audit --no-fund --silent && npm pack --silent --pack-destination ../../target/sdk

deps: ## install what the tests need and this machine lacks
	@echo "== test dependencies"
	@scripts/test-deps.sh

check: ## format, lints and quick unit tests: no root, no services
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings
	@$(CARGO) test --quiet --lib --bins $(CHECKED:%=-p %) -- $(UNCHECKED:%=--skip %)
	@echo "== not run: every other crate (root, a server or minutes), in these $(UNCHECKED) (a server),"
	@echo "==          and the end-to-end tests. 'make test' runs them all."

test: deps ## check format and lints, run every test
	@echo "== format"
	@$(CARGO) fmt --all --check
	@echo "== lints"
	@$(CARGO) clippy --workspace --all-targets -- -D warnings
	@echo "== licences"
	@$(CARGO) run --quiet -p xtask -- licences
	@echo "== harness and pages of the benchmarks"
	@python3 -m unittest discover --quiet --start-directory bench
	@echo "== tests"
	@export RUST_TEST_THREADS=$(TEST_THREADS); $(SLOWEST) --rerun 3 $(CARGO) test --workspace --no-fail-fast
	@echo "== model checks of the pool"
	@$(CARGO) test -p pool --features model
	@echo "== all tests passed"

test-full: test ## the same and what takes long; test-PART is one part (oracle …)
	@echo "== heavy tests: $(FULL_PARTS)"
	@$(CARGO) test --workspace --test full -- --test-threads 1
	@$(MAKE) --no-print-directory fuzz
	@echo "== all tests passed, the heavy ones too"

fuzz: ## run the fuzz targets, or TARGET=… for FUZZ_SECONDS=…
	@echo "== fuzz targets"
	@FUZZ_SECONDS=$(FUZZ_SECONDS) fuzz/run $(if $(TARGET),$(TARGET) $(FUZZ_SECONDS))

$(FULL_PARTS:%=test-%): test-%: deps
	@$(CARGO) test --workspace --test full $*:: -- --test-threads 1

lint: ## check format, lints, conventions and licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) run --quiet -p xtask -- tidy
	$(CARGO) run --quiet -p xtask -- licences

fmt: ## format the code
	$(CARGO) fmt --all

bench: ## compare all services with rivals for an hour on this machine; writes bench/RESULTS.md
	bench/run.py $(ARGS)

bench-check: ## compare the instructions of this branch with those of BASE=origin/main
	@bench/check.py --base $(BASE)

help: ## show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'
