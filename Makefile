# On a fresh machine, each with its own installation into .venv:
#
#   make student         JupyterLab on the exercises, in student/: answers in it are never overwritten
#   make lab             JupyterLab on the notebooks with their solutions
#   make test            the tests, then every notebook
#   make bench           the benchmarks
#   make compare         training steps side by side on this machine, with and without speed-ups
#   make assignments     student notebooks into assignments/release
#   make student-repo    the repository that students get: OUT=folder REPO=https://github.com/OWNER/NAME
#   make gallery         the notebooks' figures for readers of docs/gallery.md; needs Chrome or Chromium
#   make browser         every notebook in JupyterLab under Chromium; screenshots go to out/browser/
#   make format          formatting of code and notebooks
#   make lock            the newest versions into constraints.txt, for LOCKED=1; needs uv
#
#   ARGS=...             more for the command: make lab ARGS=--port=9000, make test ARGS="-k pool"
#   PIP_ARGS=...         more for the installer: PIP_ARGS="--extra-index-url ADDRESS" for PyTorch's CPU-only packages
#   PYTHON=python3.13    the Python to use, 3.11 or newer
#   LOCKED=1             the versions of constraints.txt, so that a whole class has the same

include install.mk

.PHONY: student lab test bench compare assignments student-repo gallery browser format lock

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

student-repo: $(INSTALLED)
	@test -n "$(OUT)" || { echo "Say where: make student-repo OUT=folder REPO=address" >&2; exit 1; }
	.venv/bin/python -m tools.student_repo "$(OUT)" $(if $(REPO),--repo "$(REPO)")

gallery: $(INSTALLED)
	$(INSTALL) --quiet kaleido
	.venv/bin/python tools/gallery.py $(ARGS)

browser: $(INSTALLED)
	$(INSTALL) --quiet playwright
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -m browser -n 2 --dist worksteal tests/browser $(ARGS)

format: $(INSTALLED)
	.venv/bin/ruff check --fix
	.venv/bin/ruff format
	.venv/bin/python tools/notebooks.py

# Every system and every Python from 3.11 on, in one file.
lock:
	uv pip compile --universal --upgrade --python-version 3.11 --no-header --no-annotate --quiet \
		requirements.txt -o constraints.txt
