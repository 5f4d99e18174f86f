# Serve the explorer: docker build -t tmmu . && docker run --rm -p 8501:8501 tmmu
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE requirements.lock ./
COPY app app
COPY tmmu tmmu
COPY tmmu_core tmmu_core
COPY sample_graphs sample_graphs
COPY docs docs
RUN python -m venv /opt/tmmu \
    && /opt/tmmu/bin/pip install --no-cache-dir -r requirements.lock \
    && /opt/tmmu/bin/pip install --no-cache-dir --no-deps .

FROM python:3.11-slim
COPY --from=build /opt/tmmu /opt/tmmu
RUN useradd --create-home --uid 10001 tmmu
USER tmmu
WORKDIR /home/tmmu
ENV PATH=/opt/tmmu/bin:$PATH PYTHONDONTWRITEBYTECODE=1
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
ENTRYPOINT ["tmmu", "explore", "--no-browser", "--address", "0.0.0.0", "--port", "8501"]
