# Two commands do all the set-up by themselves: `make demo` and `make test`.
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMPS := .stamps
NATIVE := $(shell find native -name '*.h' -o -name '*.cpp' -o -name '*.c')
# What writes the wrappers of the tape and the kernels of graphs.
GENERATOR := $(wildcard src/torchreel/tape/rules/*.py src/torchreel/tape/rules/*.txt \
	src/torchreel/tape/codegen/*.py src/torchreel/graphs/codegen/*.py)
PIP := $(PYTHON) -m pip install --quiet --quiet --disable-pip-version-check
# A run that takes longer (in seconds) says where it stands, and ends: see tests/limits.py.
LIMIT := PYTHONHASHSEED=0 timeout --signal=XCPU --kill-after=60
# Scheduling by file would wait for ever for the files of a process that crashed.
# More workers than two cores need: some wait for the processes and browsers that they started.
WORKERS := -n 4 --dist worksteal
# What .ci/run adds.
PYTEST_OPTIONS ?=
export MAX_JOBS ?= 2

.PHONY: demo viewer docs quick test test-long bench lint tidy format clean

demo: $(STAMPS)/core $(if $(shell command -v npm),$(STAMPS)/viewer)
	@rm -rf demo.reel
	$(VENV)/bin/torchreel record --all -o demo.reel examples/train_transformer.py
	@$(VENV)/bin/torchreel report demo.reel --limit 15
	@echo "The reel is demo.reel/. Look at it: $(if $(shell command -v npm),,make viewer; )$(VENV)/bin/torchreel view demo.reel"

# The page of `torchreel view`; only this needs node, which comes as a wheel where there is none.
VIEWER := $(shell find viewer/src -type f 2>/dev/null)
viewer: $(STAMPS)/viewer
$(STAMPS)/viewer: $(STAMPS)/torch $(VIEWER) viewer/package.json
	@mkdir -p src/torchreel/web/page
	cd viewer && ./npm install --silent --no-fund --no-audit && ./npm run --silent build
	@touch $@

# The atlas of torchreel's own sources, with what the example cost.
docs: $(STAMPS)/core
	@rm -rf build/docs.reel
	$(VENV)/bin/torchreel record --stacks --shapes --memory --flops -o build/docs.reel examples/train_transformer.py
	$(VENV)/bin/torchreel atlas build/docs.reel -o build/atlas --source torchreel=src/torchreel --source native \
		--source examples
	$(VENV)/bin/torchreel atlas --check build/atlas

test: $(STAMPS)/native $(STAMPS)/dev lint $(STAMPS)/viewer
	$(LIMIT) 7200 $(PYTHON) -m pytest -m "not long" $(WORKERS) $(PYTEST_OPTIONS)

# The rooms that need no torch: reels and what is made of them, and the simulator. Without whole programs and browsers.
quick: $(STAMPS)/native $(STAMPS)/dev
	$(LIMIT) 600 $(PYTHON) -m pytest -m "not long and not programs and not browser" $(WORKERS) \
		tests/reel tests/ingest tests/analyze tests/export tests/program tests/simulator tests/test_layering.py

test-long: $(STAMPS)/native $(STAMPS)/dev
	$(LIMIT) 86400 $(PYTHON) -m pytest -m long -o timeout=7200 -o faulthandler_timeout=7500

bench: $(STAMPS)/native $(STAMPS)/dev
	$(PYTHON) -m benchmarks

lint: $(STAMPS)/native $(STAMPS)/dev $(STAMPS)/viewer
	$(VENV)/bin/ruff check src tests benchmarks examples setup.py
	$(VENV)/bin/ruff format --check src tests benchmarks examples setup.py
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror $(NATIVE)
	cd viewer && ./npm run --silent check && ./npm run --silent lint && ./npm run --silent test

format: $(STAMPS)/dev
	$(VENV)/bin/ruff check --fix src tests benchmarks examples setup.py
	$(VENV)/bin/ruff format src tests benchmarks examples setup.py
	cd viewer && ./npm run --silent lint -- --write
	$(VENV)/bin/clang-format -i $(NATIVE)

# What clang-tidy and editors ask for, file by file; ninja's paths begin at the root.
compile_commands.json: $(STAMPS)/native
	TORCHREEL_UNITY=no $(PYTHON) setup.py --quiet write_graph
	$(PYTHON) -m ninja -f build/native-by-file/build.ninja -t compdb compile >$@

tidy: compile_commands.json $(STAMPS)/dev
	$(VENV)/bin/clang-tidy --quiet -p . $(filter %.cpp,$(NATIVE))

clean:
	rm -rf $(VENV) $(STAMPS) build compile_commands.json src/torchreel/*.so demo.reel viewer/node_modules src/torchreel/web/page

# torch first, so that nothing that comes after pulls another build of it.
$(STAMPS)/torch:
	@mkdir -p $(STAMPS)
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) "setuptools>=77" wheel ninja
	@touch $@

$(STAMPS)/package: $(STAMPS)/torch pyproject.toml
	TORCHREEL_NATIVE=no $(PIP) --no-build-isolation -e .
	@touch $@

# Only what changed is compiled, and for the demo only what it imports.
BUILD := $(PYTHON) setup.py --quiet build_ext --inplace
$(STAMPS)/core: $(STAMPS)/package setup.py $(NATIVE)
	@echo "Compiling what records and reads: some two minutes the first time."
	@TORCHREEL_NATIVE="_core _decode" $(BUILD) >$(STAMPS)/core.log 2>&1 || { cat $(STAMPS)/core.log; exit 1; }
	@touch $@

$(STAMPS)/native: $(STAMPS)/core $(GENERATOR)
	@echo "Compiling the tape, the graphs and the simulator: some three minutes the first time."
	@$(BUILD) >$(STAMPS)/native.log 2>&1 || { cat $(STAMPS)/native.log; exit 1; }
	@touch $@

$(STAMPS)/dev: $(STAMPS)/package
	TORCHREEL_NATIVE=no $(PIP) --no-build-isolation -e ".[dev]"
	@touch $@
