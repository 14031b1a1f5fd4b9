# `make demo` and `make test` are the two commands of the README; both install what a new Debian or
# Ubuntu machine lacks (see scripts/setup).

CROSSPOINT_COMMIT ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
export CROSSPOINT_COMMIT
# Where Rust's own installer puts it.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test dist dist-check python-check setup-demo setup-test clean

demo: setup-demo
	@cargo build --release --quiet --package crosspoint
	@$(TARGET)/release/crosspoint run quickstart

test: setup-test
	@scripts/test

setup-demo:
	@scripts/setup demo

setup-test:
	@scripts/setup test

# A tarball and a Debian package in target/dist; dist-check installs both into fresh Debian roots (root, debootstrap).
dist: setup-demo
	@scripts/dist

# The wheel in a clean environment, with its tests and its notebook (python3 with venv, the net).
python-check:
	@scripts/python-check

dist-check:
	@scripts/dist-check

clean:
	@$(TARGET)/release/crosspoint clean
