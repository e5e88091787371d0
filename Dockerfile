# Greenroom with every platform and model provider; docs/deploy.md says how to build and run it.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /src
RUN python -m venv /opt/greenroom
COPY requirements requirements
# Locked versions with the hashes of their files, as docs/operating.md says for production.
RUN /opt/greenroom/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
      --requirement "requirements/py$(python -c 'import sys; print(*sys.version_info[:2], sep="")').txt"
COPY pyproject.toml constraints.txt README.md LICENSE plugins.json ./
COPY bot bot
COPY adapters adapters
COPY plugins plugins
COPY characters characters
RUN PIP_CONSTRAINT=constraints.txt /opt/greenroom/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps . \
    && /opt/greenroom/bin/pip uninstall --yes pip

FROM python:${PYTHON}-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin greenroom \
    && install --directory --owner=greenroom --mode=0700 /data
COPY --from=build /opt/greenroom /opt/greenroom
# Nothing but /data is written to, so the root file system may be read-only. /bot is the folder of characters and .env.
ENV PATH=/opt/greenroom/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    BOT_DATA_DIR=/data \
    SERVER_HOST=0.0.0.0 \
    SERVER_PORT=3000
WORKDIR /bot
USER 10001
VOLUME /data
EXPOSE 3000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['SERVER_PORT'] + '/healthz', timeout=4)"]
ENTRYPOINT ["bot"]
CMD ["run"]
