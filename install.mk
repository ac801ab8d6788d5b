# How the packages get into .venv: for the Makefile here, and for the one of the students' repository.

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

$(INSTALLED): .venv/bin/python pyproject.toml requirements.txt $(if $(LOCKED),constraints.txt)
	$(INSTALL) $(REQUIREMENTS)
	$(INSTALL) --no-deps -e .
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(NO_PYTHON)" >&2; exit 1; }
	@rm -rf .venv
	@$(MAKE_VENV)

.DEFAULT_GOAL := student
