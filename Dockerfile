# The image of web, workers, beat and migrations; they differ in their command.

FROM python:3.12-slim AS build
RUN python -m venv /opt/venv
COPY requirements/base.txt /tmp/base.txt
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r /tmp/base.txt

FROM python:3.12-slim
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    COLLECTED_STATIC=true \
    DATA_DIR=/data \
    WEB_PORT=8000
RUN useradd --system --uid 10001 --no-create-home allotment \
    && install --directory --owner allotment --group allotment --mode 0700 /data
COPY --from=build /opt/venv /opt/venv
WORKDIR /srv/allotment
COPY . .
# The key made for this one command stays in a folder that the image doesn't keep.
RUN DATA_DIR=/tmp/build python manage.py collectstatic --no-input && rm -r /tmp/build
USER allotment
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=15s --start-period=30s --retries=3 \
    CMD ["python", "manage.py", "healthcheck", "--web"]
CMD ["gunicorn", "config.wsgi", "--bind", "0.0.0.0:8000", "--workers", "4", "--threads", "4", \
     "--no-control-socket", "--worker-tmp-dir", "/dev/shm", "--access-logfile", "-"]
