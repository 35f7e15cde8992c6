#!/usr/bin/env bash
# Run commands of the README as a new user would: a clone, an empty home, and only Debian's programs on the PATH.
#
#     tests/packaging/fresh_machine.sh demo         # or: demo test
#
# Prints how long each took. Uses /usr/bin/python3.11, which differs from the first python3.11 of many machines.
set -euo pipefail

project=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -x /usr/bin/python3.11 ]; then
  echo "no /usr/bin/python3.11 on this machine: the commands run with the first Python of /usr/bin"
fi

git clone -q "$project" "$work/clone"
mkdir "$work/home"
# registries, certificates and proxies are the machine's own; nothing else of this environment is passed on
passed=$(env | grep -E '^(PIP_[A-Z_]+|[A-Za-z_]*(proxy|PROXY)|[A-Z_]*CA_BUNDLE|SSL_CERT_(FILE|DIR))=' || true)
variables=()
[ -z "$passed" ] || readarray -t variables <<<"$passed"

cd "$work/clone"
for target in "$@"; do
  start=$SECONDS
  env -i HOME="$work/home" PATH=/usr/bin:/bin LANG=C.UTF-8 "${variables[@]}" make "$target"
  echo "make $target took $((SECONDS - start)) s with $(/usr/bin/python3 --version) on a bare machine"
done
git status --short
