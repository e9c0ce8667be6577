#!/usr/bin/env bash
# Writes the digest of the SGLang image behind its tag in docker/Dockerfile, so that a build is the same next year.
# docker/pin.sh [TAG]     Needs curl and a way to the registry; without one nothing is changed.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
file="${PIN_FILE:-$here/Dockerfile}"
image="lmsysorg/sglang"
tag="${1:-$(sed -n 's/^ARG SGLANG_TAG=\([^@]*\).*/\1/p' "$file")}"
[[ "$tag" =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$ ]] || { echo "pin.sh: no such tag can exist: $tag" >&2; exit 2; }

fail() { echo "pin.sh: $1; $file is unchanged" >&2; exit 2; }
auth="https://auth.docker.io/token?service=registry.docker.io&scope=repository:$image:pull"
token="$(curl -fsSL --max-time 20 "$auth" | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')" || fail "the registry cannot be reached"
[[ -n "$token" ]] || fail "the registry gave no token"
accept="application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
accept="$accept, application/vnd.docker.distribution.manifest.v2+json"
headers="$(curl -fsSIL --max-time 20 -H "Authorization: Bearer $token" -H "Accept: $accept" \
  "https://registry-1.docker.io/v2/$image/manifests/$tag")" || fail "$image has no tag $tag"
digest="$(tr -d '\r' <<< "$headers" | sed -n 's/^[Dd]ocker-[Cc]ontent-[Dd]igest: \(sha256:[0-9a-f]\{64\}\)$/\1/p' | tail -1)"
[[ -n "$digest" ]] || fail "the registry named no digest for $tag"
sed -i "s|^ARG SGLANG_TAG=.*|ARG SGLANG_TAG=$tag@$digest|" "$file"
echo "$image:$tag@$digest"
