# roadmap: image-retrieval embeddings over libtorch. `make help` lists the targets.
#
# The build needs Go, g++ and, to fetch libtorch once, python3 with pip.
#   LIBTORCH=/path/to/torch    use an installed torch's folder instead of fetching one
#   WHEELS=libtorch-cuda       fetch the CUDA libraries as well, for a machine with a GPU

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

ifneq ($(words $(CURDIR)),1)
$(error The path of this checkout has a space in it, which neither make nor the compiler flags allow: move it)
endif

export LIBTORCH_DIR ?= $(CURDIR)/.libtorch
TORCH := $(or $(abspath $(LIBTORCH)),$(LIBTORCH_DIR)/torch)
COMPAT := $(CURDIR)/pkg/torch/gotch_compat.h

# What cgo needs. Go's build cache does not look into an included header, so
# REV, drawn from its content, has the C++ compiled again when it changes.
FLAGS := CGO_ENABLED CXX CGO_CFLAGS CGO_CXXFLAGS CGO_LDFLAGS
export CGO_ENABLED := 1
export CXX := $(CURDIR)/.ci/cxx
export CGO_CFLAGS := -O2 -w
export CGO_CXXFLAGS := -O2 -w -DREV=0x$(shell sha256sum $(COMPAT) | cut -c1-8) -include $(COMPAT) -isystem $(TORCH)/include -isystem $(TORCH)/include/torch/csrc/api/include
export CGO_LDFLAGS := -L$(LIBTORCH_DIR)/stubs -L$(TORCH)/lib -Wl,--allow-shlib-undefined -Wl,-rpath,$(TORCH)/lib

# Python's torch and the reference libraries, installed by .ci/python.
PYTHON := $(CURDIR)/.venv/bin/python

# What `roadmap --version` prints.
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),development)

# The packages that build without C: their tests run in seconds, and on a
# machine without libtorch.
PURE = $(shell go list -e -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk '!/roadmap\/(pkg\/(torch|jpeg|process)|eval\/knn)|sugarme\/gotch/ { print $$1 }')
SOURCES = find . -name '.?*' -prune -o -name '$(1)' -print

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: ## fetch libtorch if it is not here, or not whole
	@.ci/setup

.PHONY: build
build: setup ## the program: bin/roadmap
	@go build -ldflags "-X main.version=$(VERSION)" -o bin/roadmap ./cmd/roadmap

.PHONY: demo
demo: build ## train and evaluate on rendered characters: about a minute on two cores, after the first build
	@bin/roadmap train glyphs_demo

# Of staticcheck's checks, ST1003 finds fault with the names that cgo generates.
.PHONY: test
test: setup tools ## every check and every test
	@echo "set-up scripts"; .ci/setup_test
	@echo "gofmt"; $(call SOURCES,*.go) | xargs gofmt -l | { ! grep . || { echo "^ not formatted: run gofmt -w on them"; exit 1; }; }
	@echo "C++ warnings"; .ci/warnings
	@echo "go vet"; go vet ./...
	@echo "staticcheck"; .tools/staticcheck -checks all,-ST1003 ./...
	@echo "pure Go packages"; CGO_ENABLED=0 go build $(PURE); CGO_ENABLED=0 go vet $(PURE)
	@echo "go test -race ./pkg/torch/... ./eval/knn"; go test -race -timeout 30m ./pkg/torch/... ./eval/knn
	@echo "go test ./..."; go test -timeout 30m ./...

.PHONY: pure
pure: ## test the packages that need no libtorch, where there is none
	@CGO_ENABLED=0 go test $(PURE)
	@env -u CGO_CFLAGS -u CGO_CXXFLAGS -u CGO_LDFLAGS go test ./eval/knn

.PHONY: bench
bench: build python ## this machine's speed, beside the same work in Python's torch
	@ROADMAP_PYTHON=$(PYTHON) go test -timeout 60m -run '^$$' -bench . -benchmem ./...
	@$(PYTHON) pkg/torch/testdata/bench_peers.py
	@for verb in Step Embed; do $(PYTHON) backbones/testdata/bench.py $$verb ''; done

.PHONY: conformance
conformance: setup python ## the same numbers as Python's libraries, computed there and then
	@ROADMAP_PYTHON=$(PYTHON) go test -count 1 -timeout 60m -run Conformance ./...
	@$(PYTHON) losses/testdata/reference.py --peers

.PHONY: torture
torture: setup ## kill and damage runs a thousand times, and count what came of it
	@ROADMAP_TORTURE=1000 go test -count 1 -timeout 6h -run Torture -v ./cmd/roadmap

MINUTES ?= 10
.PHONY: fuzz
fuzz: setup ## every fuzz target for its share of MINUTES=10
	@.ci/fuzz $(MINUTES)

.PHONY: env
env: ## print the exports for a shell or an editor: eval "$(make env)"
	@.ci/setup 1>&2
	@$(foreach flag,$(FLAGS),echo "export $(flag)='$$$(flag)'";)

.PHONY: tools
tools:
	@GOBIN=$(CURDIR)/.tools CGO_ENABLED=0 go -C .ci/tools install tool

.PHONY: python
python:
	@.ci/python

.PHONY: clean
clean: ## remove the program and the tools; libtorch, Python and run folders stay
	@rm -rf bin .tools

.PHONY: distclean
distclean: clean ## remove everything that make made; run folders stay
	@rm -rf .libtorch* .venv*
