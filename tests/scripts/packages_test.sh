#!/usr/bin/env bash
# ./demo as a user who may install nothing: it names what is missing and the other ways, and fails. The same user with the
# libraries in a prefix: nothing is asked for.
set -u
root=$1
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
failed=0
check() { grep -qF -- "$1" "$room/said" || { echo "FAILED: \"$1\" is not in:"; cat "$room/said"; failed=1; }; }

# A user with a number other than 0, whom sudo refuses, and a pkg-config that finds nothing outside CMAKE_PREFIX_PATH.
mkdir "$room/bin" "$room/none"
printf '#!/bin/sh\necho 1000\n' >"$room/bin/id"
printf '#!/bin/sh\nexit 1\n' >"$room/bin/sudo"
printf '#!/bin/sh\necho called >%q\n' "$room/apt" >"$room/bin/apt-get"
chmod +x "$room/bin/"*
export PATH=$room/bin:$PATH PKG_CONFIG_LIBDIR=$room/none
unset PKG_CONFIG_PATH CMAKE_PREFIX_PATH

"$root/demo" >"$room/said" 2>&1 </dev/null
[ $? = 1 ] || { echo "FAILED: ./demo did not fail"; failed=1; }
for text in libhwloc-dev libyaml-dev libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev 'apt-get install' 'module load' CMAKE_PREFIX_PATH; do
	check "$text"
done
! grep -q cmake' ' <(head -n 1 "$room/said") || { echo "FAILED: asks for cmake, which is here"; failed=1; }
[ ! -e "$room/apt" ] || { echo "FAILED: called apt-get"; failed=1; }

mkdir -p "$room/my prefix/lib/pkgconfig"
for module in hwloc yaml-0.1 jansson libpcre2-8 libutf8proc libxxhash; do
	printf 'Name: %s\nDescription: x\nVersion: 9\n' $module >"$room/my prefix/lib/pkgconfig/$module.pc"
done
. "$root/configs/packages.sh"
CMAKE_PREFIX_PATH="/nowhere:$room/my prefix" packages_need ./demo "$packages_build" >"$room/said" 2>&1 </dev/null ||
	{ echo "FAILED: asks for what a prefix has:"; cat "$room/said"; failed=1; }

for script in "$root"/{demo,check,.ci/run} "$root"/configs/*.sh "$root"/tests/cluster/*.sh; do
	bash -n "$script" || failed=1
done
exit $failed
