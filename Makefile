# `make demo` and `make test` need nothing but a Debian 12 with make: what is missing is installed first.
SOURCES = $(shell find include src tests bench examples python -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh')
FUZZ_SECONDS ?= 60
MUTANTS ?= 100000

.PHONY: demo test build bench docs gpu-test gpu-bench test-asan test-tsan fuzz mutants lint format format-check clean setup setup-tools

demo: setup
	cmake --preset host
	cmake --build --preset host --target flashoverlap_cli
	build/host/flashoverlap demo --output out

test: build
	ctest --preset release

build: setup
	cmake --preset release
	cmake --build --preset release

bench: build
	for program in build/release/bench/*_bench; do $$program || exit 1; done

gpu-test: build
	ctest --preset gpu
	scripts/gpu_suite.sh test

gpu-bench: build
	mkdir -p out
	build/release/flashoverlap bench gemm --leave-free 4,8,16,32 --json out/bench-gemm.json
	scripts/gpu_suite.sh bench

test-asan test-tsan: test-%: setup
	cmake --preset $*
	cmake --build --preset $*
	ctest --preset $*

fuzz: setup setup-tools
	cmake --preset fuzz
	cmake --build --preset fuzz --target plan_reader_fuzzer
	mkdir -p build/fuzz/corpus
	build/fuzz/tests/fuzz/plan_reader_fuzzer -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 \
	  -artifact_prefix=build/fuzz/ build/fuzz/corpus tests/fuzz/corpus

mutants: setup
	cmake --preset release
	cmake --build --preset release --target mutants_test
	FLASHOVERLAP_MUTANTS=$(MUTANTS) build/release/tests/mutants_test

lint: setup setup-tools
	cmake --preset release
	find src -name '*.cpp' -print0 | xargs -0 -n 1 -P 2 clang-tidy --quiet -p build/release 2>build/lint.log \
	  || { cat build/lint.log; exit 1; }

format: setup-tools
	@clang-format -i $(SOURCES)

format-check: setup-tools
	@clang-format --dry-run --Werror $(SOURCES)

# Needs PyPI; the site is then in build/docs/site.
docs: setup
	python3 -m venv build/docs/environment
	build/docs/environment/bin/pip install --quiet 'mkdocs<2' 'mkdocstrings[python]'
	scripts/gather_docs.py build/docs/pages
	build/docs/environment/bin/mkdocs build --quiet --strict

clean:
	rm -rf build out

setup:
	@scripts/setup.sh build

setup-tools:
	@scripts/setup.sh tools
