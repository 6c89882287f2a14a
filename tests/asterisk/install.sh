#!/usr/bin/env bash
# Installs Asterisk 22 for `make test-asterisk`: no stable Debian has it, so a tree of Debian sid (about 600 MB) is made
# in the folder given, and Asterisk runs in there by chroot. Does nothing when it is there.
set -euo pipefail
tree=${1:?usage: install.sh FOLDER}
log=/tmp/rejoinder-asterisk.log
mirror=${REJOINDER_DEBIAN_MIRROR:-http://deb.debian.org/debian}
[ -x "$tree/usr/sbin/asterisk" ] && [ -e "$tree/.complete" ] && exit 0
[ "$(id -u)" -eq 0 ] || { echo "error: run as root: a chroot is made and entered" >&2; exit 2; }
command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap >"$log" 2>&1 ||
  { tail -n 5 "$log" >&2; echo "error: apt could not install debootstrap (whole log: $log)" >&2; exit 2; }
echo "==> making a tree of Debian sid with Asterisk in $tree (once, a few minutes)"
if [ -e "$tree" ]; then
  [ -e "$tree/.rejoinder" ] || { echo "error: $tree is there and was not made by this script; name another folder" >&2; exit 2; }
  rm -rf "$tree"
fi
mkdir -p "$tree"
touch "$tree/.rejoinder"
if ! {
  debootstrap --variant=minbase --include=ca-certificates sid "$tree" "$mirror" &&
    printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d" && chmod +x "$tree/usr/sbin/policy-rc.d" &&
    # A mirror that stands still has an index past its date; what it holds is signed all the same.
    printf 'Acquire::Check-Valid-Until "false";\n' >"$tree/etc/apt/apt.conf.d/90still" &&
    { grep -hs 'Acquire::https\?::Proxy' /etc/apt/apt.conf.d/* >"$tree/etc/apt/apt.conf.d/91host" || true; } &&
    cp -L /etc/resolv.conf "$tree/etc/resolv.conf" &&
    DEBIAN_FRONTEND=noninteractive chroot "$tree" apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive chroot "$tree" apt-get install -y -qq --no-install-recommends asterisk asterisk-modules
} >"$log" 2>&1; then
  tail -n 8 "$log" >&2
  echo "error: Asterisk could not be installed (whole log: $log)" >&2
  exit 2
fi
touch "$tree/.complete"
chroot "$tree" /usr/sbin/asterisk -V
