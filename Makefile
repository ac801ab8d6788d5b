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
#   make lock            the newest versions into constraints.txt, for LOCKED=1; needs uv
#
#   ARGS=...             more for the command: make lab ARGS=--port=9000, make test ARGS="-k pool"
#   PIP_ARGS=...         more for the installer: PIP_ARGS="--extra-index-url ADDRESS" for PyTorch's CPU-only packages
#   PYTHON=python3.13    the Python to use, 3.11 or newer
#   LOCKED=1             the versions of constraints.txt, so that a whole class has the same

PYTHON ?= python3
PIP_ARGS ?=
ARGS ?=

LOCKED ?=
INSTALLED = .venv/installed$(if $(LOCKED),-locked)

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

# Both installers keep packages that satisfy their ranges: only constraints move a package that is there already.
REQUIREMENTS = -r requirements.txt $(if $(LOCKED),-c constraints.txt)

# So that JupyterLab's terminals and `!labkit` in a notebook find the commands that were installed.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: student lab test bench compare assignments gallery format lock

student: $(INSTALLED)
	.venv/bin/python tools/assignments.py --copy student
	cd student && ../.venv/bin/python -m jupyterlab $(LAB_ARGS) $(ARGS)

lab: $(INSTALLED)
	cd notebooks && ../.venv/bin/python -m jupyterlab $(LAB_ARGS) $(ARGS)

test: $(INSTALLED)
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --dist loadfile $(ARGS)

bench: $(INSTALLED)
	.venv/bin/python -m pytest -q -s benchmarks $(ARGS)

compare: $(INSTALLED)
	.venv/bin/labkit compare $(ARGS)

assignments: $(INSTALLED)
	.venv/bin/python tools/assignments.py

gallery: $(INSTALLED)
	$(INSTALL) --quiet kaleido
	.venv/bin/python tools/gallery.py $(ARGS)

format: $(INSTALLED)
	.venv/bin/ruff check --fix
	.venv/bin/ruff format
	.venv/bin/python tools/notebooks.py

$(INSTALLED): .venv/bin/python pyproject.toml requirements.txt $(if $(LOCKED),constraints.txt)
	$(INSTALL) $(REQUIREMENTS)
	$(INSTALL) --no-deps -e .
	@touch $@

# Every system and every Python from 3.11 on, in one file.
lock:
	uv pip compile --universal --upgrade --python-version 3.11 --no-header --no-annotate --quiet \
		requirements.txt -o constraints.txt

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(NO_PYTHON)" >&2; exit 1; }
	@rm -rf .venv
	@$(MAKE_VENV)
