#!/usr/bin/env bash
# images/engine.sh COMMAND...   run a command with a container engine, and with the base image where no registry is reached.
#
# An engine that answers is used as it is. Otherwise dockerd is started for the command alone, and stopped behind it. It makes no
# bridge and no rule of iptables: builds use the host's network, and the two-host tests a network of their own without a way out.
# Layers stay in ${CTRFLOW_CACHE:-~/.cache/ctrflow}/engine, so that the next build takes seconds.
#
# BASE_IMAGE is handed on when set. When it is not and there is no registry, a stand-in is made of this machine's own apt sources and
# certificates, and exported as BASE_IMAGE. Such a stand-in is for tests on this machine: never push what is built from it.
#
# Exit code 69: no engine can run on this machine. Any other failure is the command's, or is worth a look.
set -euo pipefail
STAND_IN=localhost/python:3.11-slim-bookworm
PINNED=$(sed -n 's/^ARG BASE_IMAGE=//p' "$(dirname "$0")/steps/Dockerfile" | head -n 1)
export DOCKER_BUILDKIT=0  # the builder that every engine has

fail() { echo "images: $1" >&2; exit 1; }
unavailable() { echo "images: $1" >&2; exit 69; }

stop_engine() {
  local pid; pid=$(cat "$work/pid" 2> /dev/null || true)
  if [ -n "$pid" ]; then
    docker ps -aq --filter label=ctrflow.test | xargs -r docker rm -f > /dev/null 2>&1 || true
    docker network ls -q --filter label=ctrflow.test | xargs -r docker network rm > /dev/null 2>&1 || true
    kill "$pid" 2> /dev/null || true
    for _ in $(seq 100); do kill -0 "$pid" 2> /dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2> /dev/null || true
  fi
  for mount in $(awk -v root="$work" 'index($2, root) == 1 {print $2}' /proc/mounts | sort -r); do umount -l "$mount" || true; done
  find /sys/fs/cgroup -mindepth 1 -maxdepth 2 -type d -name "$cgroup" 2> /dev/null | while read -r left; do
    find "$left" -depth -type d -exec rmdir {} + 2> /dev/null || true
  done
  rm -rf "$work"
}

start_engine() {
  command -v dockerd > /dev/null || unavailable "no container engine; on Debian: apt-get install docker.io mmdebstrap iproute2"
  [ "$(id -u)" = 0 ] || unavailable "dockerd is installed but does not run; start it, or run this as root"
  # What a container is made of. dockerd itself starts without it, and fails in the first step of a build.
  unshare --mount --pid --net --fork --mount-proc true 2> /dev/null \
    || unavailable "root may not make namespaces and mounts here, so no engine can run; in a container, that takes --privileged"
  local driver data; data="${CTRFLOW_CACHE:-${HOME:-/root}/.cache/ctrflow}/engine"
  mkdir -p "$data"
  exec 8> "$data.lock"
  flock -n 8 || { echo "images: waiting for another build on this machine" >&2; flock 8; }
  work=$(mktemp -d /tmp/ctrflow-engine-XXXXXX)
  cgroup=ctrflow-${work##*-}
  trap stop_engine EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  dockerd --data-root "$data" --exec-root "$work/exec" --pidfile "$work/pid" -H "unix://$work/docker.sock" --cgroup-parent "/$cgroup" \
    --bridge none --iptables=false --ip6tables=false --ip-forward=false --default-address-pool base=198.18.32.0/20,size=24 \
    > "$work/log" 2>&1 8>&- &
  export DOCKER_HOST="unix://$work/docker.sock"
  for _ in $(seq 300); do
    if driver=$(docker info --format '{{.Driver}}' 2> /dev/null); then
      # vfs copies all of an image for each line of a Dockerfile: 60 GB and an hour.
      [ "$driver" != vfs ] || unavailable "$data is on a disk without overlays; set CTRFLOW_CACHE to a folder on another"
      return
    fi
    kill -0 $! 2> /dev/null || break
    sleep 0.1
  done
  unavailable "dockerd did not start: $(tail -n 1 "$work/log")"
}

make_base() {
  if docker image inspect "$STAND_IN" > /dev/null 2>&1; then export BASE_IMAGE=$STAND_IN; return; fi
  if docker pull -q "$PINNED" > /dev/null 2>&1; then export BASE_IMAGE=$PINNED; return; fi
  command -v mmdebstrap > /dev/null || unavailable "no registry is reached and mmdebstrap is missing; on Debian: apt-get install mmdebstrap"
  local sources=/etc/apt/sources.list.d/debian.sources
  [ -f "$sources" ] || sources=/etc/apt/sources.list
  echo "images: no registry is reached; making $STAND_IN of this machine's apt sources (1 to 3 minutes)" >&2
  mmdebstrap --quiet --variant=minbase --mode=root \
    --include=ca-certificates,python3,python3-pip,python3-venv,python-is-python3,netbase \
    --customize-hook='for each in /usr/local/share/ca-certificates/*.crt; do [ ! -f "$each" ] || cp "$each" "$1/usr/local/share/ca-certificates/"; done; chroot "$1" update-ca-certificates > /dev/null' \
    --customize-hook='[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$1/etc/pip.conf"' \
    --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' \
    bookworm - "$sources" | docker import --change 'CMD ["bash"]' - "$STAND_IN" > /dev/null
  export BASE_IMAGE=$STAND_IN
}

[ $# -gt 0 ] || fail "which command? images/engine.sh COMMAND..."
docker info > /dev/null 2>&1 || start_engine
[ -n "${BASE_IMAGE:-}" ] || make_base
"$@"
