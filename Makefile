# On a fresh machine, each with its own installation into .venv:
#
#   make student         JupyterLab on the exercises, in student/: answers in it are never overwritten
#   make lab             JupyterLab on the notebooks with their solutions
#   make test            the tests, then every notebook
#   make bench           the benchmarks
#   make compare         training steps side by side on this machine, with and without speed-ups
#   make assignments     student notebooks into assignments/release
#   make gallery         the notebooks' figures for readers of docs/gallery.md; needs Chrome or Chromium
#   make format          formatting of code and notebooks
#
#   ARGS=...             more for the command: make lab ARGS=--port=9000, make test ARGS="-k pool"
#   PIP_ARGS=...         more for the installer: PIP_ARGS="--extra-index-url ADDRESS" for PyTorch's CPU-only packages
#   PYTHON=python3.13    the Python to use, 3.11 or newer

PYTHON ?= python3
PIP_ARGS ?=
ARGS ?=

UV := $(shell command -v uv 2>/dev/null)
ifneq ($(UV),)
  MAKE_VENV = uv venv --quiet --seed --python $(PYTHON) .venv
  INSTALL = uv pip install --python .venv/bin/python $(PIP_ARGS)
  # With several indexes take the best version of all, as pip does, not the first index that knows the package.
  export UV_INDEX_STRATEGY ?= unsafe-best-match
else
  MAKE_VENV = $(PYTHON) -c 'import ensurepip' || { echo "$(NO_ENSUREPIP)" >&2; exit 1; }; $(PYTHON) -m venv .venv
  INSTALL = .venv/bin/python -m pip install $(PIP_ARGS)
endif
NO_PYTHON = labkit needs Python 3.11 or newer, and $(PYTHON) is not. Name one: make PYTHON=python3.13 $(MAKECMDGOALS)
NO_ENSUREPIP = $(PYTHON) cannot make environments. Debian and Ubuntu keep that part in the package python3-venv.

# A server without a screen gets no browser; root must say that it means it.
LAB_ARGS = $(if $(filter 0,$(shell id -u)),--allow-root)
LAB_ARGS += $(if $(DISPLAY)$(WAYLAND_DISPLAY)$(filter Darwin,$(shell uname)),,--no-browser)

# So that JupyterLab's terminals and `!labkit` in a notebook find the commands that were installed.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: student lab test bench compare assignments gallery format

student: .venv/installed
	.venv/bin/python tools/assignments.py --copy student
	cd student && ../.venv/bin/python -m jupyterlab $(LAB_ARGS) $(ARGS)

lab: .venv/installed
	cd notebooks && ../.venv/bin/python -m jupyterlab $(LAB_ARGS) $(ARGS)

test: .venv/installed
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --dist loadfile $(ARGS)

bench: .venv/installed
	.venv/bin/python -m pytest -q -s benchmarks $(ARGS)

compare: .venv/installed
	.venv/bin/labkit compare $(ARGS)

assignments: .venv/installed
	.venv/bin/python tools/assignments.py

gallery: .venv/installed
	$(INSTALL) --quiet kaleido
	.venv/bin/python tools/gallery.py $(ARGS)

format: .venv/installed
	.venv/bin/ruff check --fix
	.venv/bin/ruff format
	.venv/bin/python tools/notebooks.py

.venv/installed: .venv/bin/python pyproject.toml requirements.txt
	$(INSTALL) -r requirements.txt
	$(INSTALL) --no-deps -e .
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(NO_PYTHON)" >&2; exit 1; }
	@rm -rf .venv
	@$(MAKE_VENV)
