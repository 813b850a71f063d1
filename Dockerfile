# roadmap for training on NVIDIA GPUs.
#
#   docker build --tag roadmap .
#   mkdir -p runs
#   docker run --rm --gpus all --user "$(id -u):$(id -g)" \
#       --volume "$PWD/data:/data:ro" --volume "$PWD/runs:/runs" roadmap train RECIPE
#
# The image brings libtorch and every CUDA library it loads; of the machine it
# needs the driver (for CUDA 13.0: 580 or newer) and the NVIDIA container
# toolkit. Run folders belong to user 10000, or to whom --user names.

FROM golang:1.26-bookworm AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# Python fetches the wheels and stays behind in this stage.
# hadolint ignore=DL3008 # Debian serves one version of a package at a time
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-pip \
    && rm -rf /var/lib/apt/lists/*

# What changes least comes first: libtorch, then modules, then the source.
WORKDIR /src
ENV LIBTORCH_DIR=/opt/libtorch WHEELS=libtorch-cuda
COPY .ci/setup .ci/libtorch.txt .ci/libtorch-cuda.txt .ci/
RUN .ci/setup
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=development
RUN make build VERSION="$VERSION"

# Running takes the shared libraries; the wheels' licences go with them.
RUN find "$LIBTORCH_DIR" -type f ! -name '*.so*' ! -path '*.dist-info/*' -delete \
    && find "$LIBTORCH_DIR" -type d -empty -delete


FROM debian:12-slim
RUN useradd --uid 10000 --create-home roadmap \
    && install --directory --owner roadmap --group roadmap /runs
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build /opt/libtorch /opt/libtorch
COPY --from=build /src/bin/roadmap /usr/local/bin/roadmap
COPY LICENSE /usr/share/doc/roadmap/
USER 10000
# A run folder is made in ./runs.
WORKDIR /
ENTRYPOINT ["roadmap"]
CMD ["--help"]
