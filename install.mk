# How the packages get into .venv: for the Makefile here, and for the one of the students' repository.

PIP_ARGS ?=
ARGS ?=

LOCKED ?=
INSTALLED = .venv/installed$(if $(LOCKED),-locked)
FOR_STUDENTS = .venv/for_students$(if $(LOCKED),-locked)

NEW_ENOUGH = -c 'import sys; sys.exit(sys.version_info < (3, 11))'
fail = { rm -rf .venv; echo "$(1)" >&2; exit 1; }
NO_PYTHON = $(call fail,labkit needs Python 3.11 or newer. Name one: make PYTHON=python3.13 $(MAKECMDGOALS))
NO_ENSUREPIP = $(call fail,$(PYTHON) cannot make environments. On Debian and Ubuntu install the package python3-venv.)

# A full disk may leave half a package, which the next try would keep.
HALF = $(call fail,The installation failed: see above. .venv is removed; what was downloaded is kept.)

UV := $(shell command -v uv 2>/dev/null)
ifneq ($(filter-out %.venv/bin/uv,$(UV)),)
  # Where the system's Python is too old, uv downloads one.
  PYTHON ?= $(shell python3 $(NEW_ENOUGH) 2>/dev/null && echo python3 || echo 3.13)
  MAKE_VENV = uv venv --quiet --seed --python $(PYTHON) .venv || exit; $@ $(NEW_ENOUGH) || $(NO_PYTHON)
else
  PYTHON ?= python3
  MAKE_VENV = $(PYTHON) $(NEW_ENOUGH) || $(NO_PYTHON); $(PYTHON) -c 'import ensurepip' || $(NO_ENSUREPIP); \
    $(PYTHON) -m venv .venv
endif
export PIP_ARGS LOCKED
INSTALL = sh tools/install.sh

# A server without a screen gets no browser; root must say that it means it.
LAB_ARGS = $(if $(filter 0,$(shell id -u)),--allow-root)
LAB_ARGS += --ServerApp.log_level=WARN --LabApp.log_level=WARN
LAB_ARGS += $(if $(DISPLAY)$(WAYLAND_DISPLAY)$(filter Darwin,$(shell uname)),,--no-browser)

# Both installers keep packages that satisfy their ranges: only constraints move a package that is there already.
LOCKS = $(if $(LOCKED),-c constraints.txt)

# JupyterLab without news and without nbgrader's tools for teachers. Its button Validate stays.
student lab: export JUPYTER_CONFIG_PATH := $(CURDIR)/tools/jupyter$(if $(JUPYTER_CONFIG_PATH),:$(JUPYTER_CONFIG_PATH))

# So that JupyterLab's terminals and `!labkit` in a notebook find the commands that were installed.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# JupyterLab, the notebooks and their exercises need less than tests, grading and export.
$(FOR_STUDENTS): PACKAGES = -e ".[lab]" nbgrader
$(INSTALLED): PACKAGES = -e . -r requirements.txt
$(FOR_STUDENTS) $(INSTALLED): .venv/bin/python pyproject.toml requirements.txt $(if $(LOCKED),constraints.txt)
	@echo "Installing into .venv. It takes two minutes or more: 0.7 GB are downloaded, or 3 GB with an NVIDIA GPU ..."
	@$(INSTALL) --quiet $(PACKAGES) $(LOCKS) || { ls .venv/installed* .venv/for_* >/dev/null 2>&1 || $(HALF); exit 1; }
	@touch $@

.venv/bin/python:
	@rm -rf .venv
	@$(MAKE_VENV)

.PHONY: help
help:
	@sed -e '/^#/!q' -e 's/^# \{0,1\}//' $(firstword $(MAKEFILE_LIST))

.DEFAULT_GOAL := help
