# Every package is pinned by the hash of its wheel (image/*.txt, made by `make pin`), and none is built from source.
# The base image is named by a tag, which moves. To pin it, pass `--build-arg BASE=python@sha256:…`. The provenance of
# a released image names the digest of its base.
# Behind a proxy that rewrites TLS, give the certificates that pip should trust: `--secret id=certificates,src=FILE`. The
# first step below can read them, and no layer contains them.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS build
WORKDIR /src
COPY image/build.txt image/requirements.txt image/
RUN --mount=type=secret,id=certificates \
    if [ -s /run/secrets/certificates ]; then export PIP_CERT=/run/secrets/certificates; fi \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: --requirement image/build.txt \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: --no-deps \
      --prefix /install --requirement image/requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY live live
COPY static static
COPY templates templates
COPY packages packages
# /healthz names this commit: `--build-arg COMMIT=$(git rev-parse HEAD)`.
ARG COMMIT=
RUN pip install --no-cache-dir --disable-pip-version-check --no-index --no-deps --no-build-isolation --prefix /install .

FROM ${BASE}
# The user's home gets no start-up files of a shell. The group has a name too, because some hosts demand one.
RUN groupadd --gid 10001 live \
 && useradd --uid 10001 --gid live --home-dir /var/lib/live --no-create-home --shell /usr/sbin/nologin live \
 && install --directory --owner live --group live --mode 0700 /var/lib/live
COPY --from=build /install /usr/local
USER 10001:10001
WORKDIR /var/lib/live
# The server listens on all addresses, so it starts only once a producer has an API key (`live keys add`). It writes to
# /var/lib/live, and with several workers to /tmp. Everything else may be read-only.
ENV LIVE_HOST=0.0.0.0 LIVE_DATA_DIR=/var/lib/live/data PYTHONDONTWRITEBYTECODE=1
VOLUME /var/lib/live
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('LIVE_PORT', '8000') + os.environ.get('LIVE_ROOT_PATH', '').rstrip('/') + '/readyz', timeout=2)"]
CMD ["live", "serve"]
