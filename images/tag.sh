#!/usr/bin/env bash
# images/tag.sh   the tag of the images of this checkout: version and short commit. The one place where it is made.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$(git rev-parse --short=7 HEAD)
# What a tag names must never change: files that no commit holds are told apart by their own digest.
paths=(components pipelines images pyproject.toml requirements.lock README.md .dockerignore)
if [ -n "$(git status --porcelain -- "${paths[@]}")" ]; then
  digest=$(git ls-files -coz --exclude-standard -- "${paths[@]}" | xargs -0 sha256sum 2> /dev/null | sha256sum)
  commit=$commit-changed-${digest:0:7}
fi
echo "$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' components/images.py)-$commit"
