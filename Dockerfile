# For a machine with an NVIDIA GPU and the NVIDIA container toolkit:
#   docker build -t trimsft .
#   docker run --gpus all --ipc=host --user "$(id -u):$(id -g)" -v "$PWD:/data" trimsft doctor
#   docker run --gpus all --ipc=host --user "$(id -u):$(id -g)" -v "$PWD:/data" trimsft train --config smollm2-gsm8k --data train.jsonl
# It has not been built: no container engine was at hand. Please report what it lacks.
# No CUDA image is needed: torch's wheels bring CUDA's libraries, Triton its compiler, the toolkit the driver.
FROM python:3.12-slim

# Triton compiles a small launcher with gcc when a kernel is first used
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev git \
 && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 NVIDIA_DRIVER_CAPABILITIES=compute,utility

WORKDIR /opt/trimsft
# torch first, alone: it is by far the largest layer and changes least
COPY constraints.txt ./
RUN pip install -c constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY tools tools
COPY recipes recipes
COPY examples examples
RUN pip install -c constraints.txt '.[all]' && trimsft --version

# whatever user it runs as: models, compiled kernels and figures' fonts are kept in the mounted folder or in /tmp
ENV HOME=/tmp HF_HOME=/data/.cache/huggingface TRITON_CACHE_DIR=/tmp/triton MPLCONFIGDIR=/tmp/matplotlib
RUN mkdir /data && chmod 777 /data
USER 1000
WORKDIR /data
ENTRYPOINT ["trimsft"]
CMD ["--help"]
