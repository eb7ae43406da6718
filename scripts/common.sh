# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Sourced by the other scripts.
set -euo pipefail

EWARP_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
EWARP_JOBS=${EWARP_JOBS:-$(nproc)}

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# install_packages GROUP...: installs what these groups of packages.txt name and this machine lacks. Says what it does;
# does nothing when nothing is missing. What this release of Debian does not have is named; of the group test it is left
# out, as tests skip themselves, else it is an error.
install_packages() {
  command -v dpkg-query >/dev/null || die "this is no Debian; install what scripts/packages.txt names, then add --no-packages"
  local group names wanted="" needed="" missing=() package
  for group in "$@"; do
    names=$(sed -n "/^\[$group\]/,/^\[/ { /^[a-z]/ s/[[:space:]].*//p }" "$EWARP_ROOT/scripts/packages.txt")
    wanted+=" $names"
    [ "$group" = test ] || needed+=" ${names//$'\n'/ } "
  done
  for package in $wanted; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "these packages are missing, and only root can install them: ${missing[*]}"
    root=(sudo)
  fi
  echo "== installing: ${missing[*]}"
  # Package lists of an image that was just made may be absent or old: fetch them only when the first try fails.
  local install=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
  "${install[@]}" "${missing[@]}" >/dev/null 2>&1 && return
  "${root[@]}" apt-get update -q
  local known=()
  for package in "${missing[@]}"; do
    if [[ $(apt-cache policy "$package") =~ Candidate:\ [^\(] ]]; then
      known+=("$package")
    elif [[ $needed == *" $package "* ]]; then
      die "neither this release of Debian nor another source that apt-get reaches has $package"
    else
      echo "== this release of Debian has no $package"
    fi
  done
  [ ${#known[@]} -eq 0 ] && return
  "${install[@]}" "${known[@]}" || die "apt-get could not install ${known[*]}; see above"
}

# build_preset PRESET [TARGET...]: configures and builds quietly (all, unless targets are named); everything is shown when
# it fails. EWARP_CONFIGURE: further arguments for cmake.
build_preset() {
  local preset=$1 log began=$SECONDS
  shift
  log=$(mktemp)
  echo "== building: preset $preset"
  cd "$EWARP_ROOT"
  if ! { cmake --preset "$preset" ${EWARP_CONFIGURE-} &&
    cmake --build --preset "$preset" -j "$EWARP_JOBS" ${1+--target "$@"}; } >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "the build of preset $preset failed; see above"
  fi
  rm -f "$log"
  echo "== built: preset $preset, $((SECONDS - began)) s"
}
