#!/usr/bin/env bash
# Prints the folder of the real control plane's programs (the envtest convention), or nothing where it cannot be had.
#
# KUBEBUILDER_ASSETS wins if it is set. Else they are built from the pinned Go modules (ten minutes, once). Where that
# fails, tests that need them are skipped with the reason, except under CI=true, where failing to build is a failure.
# --describe says on one line what is there, and builds nothing.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")

if [ "${1:-}" = --describe ]; then
  assets=${KUBEBUILDER_ASSETS:-$("$here/build.sh" --if-built)}
  if [ -n "$assets" ]; then
    echo "make test: real control plane: $("$assets/kube-apiserver" --version), $("$assets/etcd" --version | head -n 1)"
  else
    echo "make test: no real control plane here: the tests that need it were skipped"
  fi
elif [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  echo "$KUBEBUILDER_ASSETS"
elif ! "$here/build.sh"; then
  echo "control-plane: could not be built (see above); tests that need it cannot run" >&2
  [ "${CI:-}" != true ]
fi
