#!/usr/bin/env bash
# images/build.sh NAME...   build images (steps, training) with the engine that answers; run it through images/engine.sh.
# BUILD_OPTIONS are docker build's own, such as --no-cache.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=$(images/tag.sh)
for name in "$@"; do
  image=ctrflow/python-$name:$tag
  started=$SECONDS
  # shellcheck disable=SC2086  # several words
  docker build ${BUILD_OPTIONS:-} --network host --file "images/$name/Dockerfile" --target "$name" --tag "$image" \
    --build-arg "BASE_IMAGE=$BASE_IMAGE" --build-arg "VERSION=${tag%%-*}" --build-arg "COMMIT=${tag#*-}" .
  echo "images: $image, $(($(docker image inspect --format '{{.Size}}' "$image") / 1000000)) MB, $((SECONDS - started)) s"
done
