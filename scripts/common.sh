# Sourced by the scripts beside it: strict mode, the root of the checkout, messages, the build.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=$(basename "$0")

# Messages go to stderr, so that stdout stays what the script is asked for.
say() { printf '%s: %s\n' "$name" "$*" >&2; }
fail() {
  say "error: $*"
  exit 1
}

# The lines of a script's own head comment are its help.
print_help() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# configure PRESET: quick where nothing changed, and says nothing then. Always done, since the list of tests that a
# build directory knows is as old as its last configuring.
configure() {
  local output
  say "configuring preset $1"
  output=$(cd "$root" && cmake --preset "$1" 2>&1) || {
    printf '%s\n' "$output" >&2
    fail "configuring failed; the lines above say why"
  }
}

# build_in DIRECTORY [TARGET…]
build_in() {
  local directory=$1
  shift
  say "building in $directory"
  if [ $# -gt 0 ]; then
    cmake --build "$directory" --target "$@" >&2 || fail "the build failed; the lines above say why"
  else
    cmake --build "$directory" >&2 || fail "the build failed; the lines above say why"
  fi
}
