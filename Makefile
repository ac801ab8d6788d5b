# On a fresh machine, each with its own installation into .venv:
#
#   make student         JupyterLab on the exercises, in student/: answers in it are never overwritten
#   make lab             JupyterLab on the notebooks with their solutions
#   make test            the everyday tests, and every notebook in its quick form
#   make test-all        all tests, and every notebook as readers run it
#   make bench           the benchmarks
#   make compare         training steps side by side on this machine, with and without speed-ups
#   make assignments     student notebooks into assignments/release
#   make grade SUBMISSIONS=files.zip NOTEBOOK=01_build_cyclegan [STUDENTS=list.csv] [STUDENT=name] [SEED=1] [ISOLATION=none]
#                        marks, feedback and a report on the class into assignments/; without SUBMISSIONS what is new there
#   make grading-image   the image of the container in which `make grade` runs students' code, with podman or docker
#   make formgrader      nbgrader's pages for teachers: the gradebook, and marks by hand
#   make student-repo    the repository that students get: OUT=folder REPO=https://github.com/OWNER/NAME
#   make address REPO=https://github.com/OWNER/NAME   this repository's address into its pages and notebooks; REPO= takes it out
#   make examination SEED=7   a sheet of questions and its key, drawn by a number that you keep to yourself
#   make gallery         the notebooks' figures for readers of docs/gallery.md; needs Chrome or Chromium
#   make site            the course as pages, which open without a server: out/site/index.html
#   make links           every link of these pages is tried
#   make browser         every notebook in JupyterLab under Chromium; screenshots go to out/browser/
#   make format          formatting of code and notebooks
#   make release         wheel and source distribution into dist/, each installed on its own and tried
#   make lock            the newest versions into constraints.txt, for LOCKED=1; needs uv
#
#   ARGS=...             more for the command: make lab ARGS=--port=9000, make test ARGS="-k pool"
#   PIP_ARGS=...         more for the installer, uv or pip: PIP_ARGS="--index-url ADDRESS" for a mirror
#   UV_TORCH_BACKEND=... PyTorch's build: cu130, for example, on a machine whose GPUs are elsewhere; empty for PyPI's
#   PYTHON=python3.13    the Python to use, 3.11 or newer
#   LOCKED=1             the versions of constraints.txt, so that a whole class has the same

include install.mk

.PHONY: student lab test test-all bench compare assignments grade grading-image formgrader student-repo
.PHONY: address examination gallery site links browser format release lock

student: $(FOR_STUDENTS) assignments/.made
	@.venv/bin/python tools/exercises.py assignments/release student
	@echo "JupyterLab opens in your browser, or at the address below: begin with 01_build_cyclegan. Ctrl-C here ends it."
	@cd student && ../.venv/bin/python -m jupyterlab $(LAB_ARGS) $(ARGS)

lab: $(INSTALLED)
	cd notebooks && ../.venv/bin/python -m jupyterlab $(LAB_ARGS) $(ARGS)

# conftest.py says what the tiers are. Many of the tests' processes import PyTorch: what the first one compiles of its
# Python is kept, even where the environment says otherwise, or each would take seconds to compile it again.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --dist loadfile -rs

test: $(INSTALLED)
	$(PYTEST) --tier quick $(ARGS)

test-all: $(INSTALLED)
	$(PYTEST) $(ARGS)

bench: $(INSTALLED)
	.venv/bin/python -m pytest -q -s benchmarks $(ARGS)

compare: $(INSTALLED)
	.venv/bin/labkit compare $(ARGS)

assignments: $(INSTALLED)
	.venv/bin/python tools/assignments.py
	@touch assignments/.made
	@echo "The students' notebooks are in assignments/release"

assignments/.made: $(wildcard notebooks/*.ipynb)
	@echo "Making the exercises: the notebooks without their answers ..."
	@.venv/bin/python tools/assignments.py
	@touch $@

option = $(if $($(2)),--$(1) "$($(2))")
grade: $(INSTALLED) assignments/.made
	.venv/bin/python -m tools.grading $(call option,submissions,SUBMISSIONS) $(call option,notebook,NOTEBOOK) \
		$(call option,students,STUDENTS) $(call option,student,STUDENT) $(call option,seed,SEED) $(ARGS)

grading-image:
	$(if $(shell command -v podman),podman,docker) build --tag labkit-grading --build-arg PIP_ARGS="$(PIP_ARGS)" \
		--file docker/grading/Dockerfile .

formgrader: $(INSTALLED)
	.venv/bin/python -m jupyterlab $(LAB_ARGS) --LabApp.default_url=/formgrader $(ARGS)

student-repo: $(INSTALLED)
	@test -n "$(OUT)" -a -n "$(REPO)" || { echo "Say where: make student-repo OUT=folder REPO=address" >&2; exit 1; }
	.venv/bin/python -m tools.student_repo "$(OUT)" "$(REPO)"

# CITATION.cff says which address is written now.
WRITTEN = $(shell sed -n 's|^repository-code: https://github.com/||p' CITATION.cff)
address: $(INSTALLED)
	perl -pi -e 's|\Q$(WRITTEN)\E|$(patsubst https://github.com/%,%,$(or $(REPO),OWNER/NAME))|g; s|^REPO = ".*?"|REPO = "$(REPO)"|' \
		README.md CITATION.cff pyproject.toml docs/install.md tools/first_cell.py
	.venv/bin/python tools/notebooks.py

examination: $(INSTALLED)
	@test -n "$(SEED)" || { echo "Say which: make examination SEED=7" >&2; exit 1; }
	.venv/bin/python -m tools.examination --seed $(SEED)

gallery: $(INSTALLED)
	$(INSTALL) --quiet playwright
	.venv/bin/python -m benchmarks.authoring.gallery $(ARGS)

site: $(INSTALLED)
	$(INSTALL) --quiet -e ".[site]"
	.venv/bin/python -m tools.website $(ARGS)

links: $(INSTALLED)
	$(INSTALL) --quiet -e ".[site]"
	.venv/bin/python -m tools.website --links $(ARGS)

browser: $(INSTALLED)
	$(INSTALL) --quiet playwright
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -m browser -n 2 --dist worksteal tests/browser $(ARGS)

format: $(INSTALLED)
	.venv/bin/ruff check --fix
	.venv/bin/ruff format
	.venv/bin/python tools/notebooks.py

release: $(INSTALLED)
	$(INSTALL) --quiet build
	rm -rf dist
	.venv/bin/python -m build --quiet
	for made in dist/*; do sh tools/try_release.sh "$$made" || exit; done

# Every system and every Python from 3.11 on, in one file.
lock:
	uv pip compile --universal --upgrade --python-version 3.11 --no-header --no-annotate --quiet \
		requirements.txt -o constraints.txt
