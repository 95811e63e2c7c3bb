FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY live live
COPY static static
COPY templates templates
RUN pip install --no-cache-dir --disable-pip-version-check --prefix /install --constraint constraints.txt .

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/live live
COPY --from=build /install /usr/local
USER live
WORKDIR /var/lib/live
# It listens for others, so it starts only once a producer has a key (`live keys add`), or with LIVE_OPEN=true.
ENV LIVE_HOST=0.0.0.0 LIVE_DATA_DIR=/var/lib/live/data
VOLUME /var/lib/live
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('LIVE_PORT', '8000') + '/readyz', timeout=2)"]
CMD ["live", "serve"]
