#!/usr/bin/env bash
# Installs what the tests need beside Python: a real browser, the last-resort voices, network namespaces, Redis, a TURN
# relay, telephones. Does nothing when all is there.
set -euo pipefail
declare -A package=(
  [chromium]=chromium [espeak-ng]=espeak-ng [flite]=flite [ip]=iproute2 [redis-server]=redis-server [turnserver]=coturn
  [baresip]=baresip-core [sipp]=sip-tester [kamailio]=kamailio
)
missing=()
for program in "${!package[@]}"; do
  command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
echo "==> installing test peers: ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "error: these are missing: ${missing[*]}. Install them with your package manager and run the same command again." >&2
  exit 2
fi
sudo=; [ "$(id -u)" -eq 0 ] || sudo=sudo
if ! { $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/tmp/rejoinder-peers.log 2>&1; then
  tail -n 5 /tmp/rejoinder-peers.log >&2
  echo "error: apt could not install ${missing[*]} (whole log: /tmp/rejoinder-peers.log)." >&2
  exit 2
fi
