# Everything is downloaded once, checked against the hashes of the lock file, and installed from
# there alone; the second stage has neither pip's cache nor the tools of development.
FROM python:3.11-slim-bookworm AS build
WORKDIR /build
COPY requirements.lock .
RUN pip wheel --no-cache-dir --require-hashes --wheel-dir /wheels --requirement requirements.lock \
    && pip install --no-cache-dir --no-index --find-links /wheels hatchling
COPY pyproject.toml README.md ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
    && python -m venv /app \
    && /app/bin/pip install --no-cache-dir --no-index --find-links /wheels tallystick

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --create-home tallystick \
    && install --directory --owner tallystick /data
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1
USER tallystick
WORKDIR /data
STOPSIGNAL SIGTERM
ENTRYPOINT ["tallystick"]
