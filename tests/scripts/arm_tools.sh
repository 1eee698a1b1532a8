#!/usr/bin/env bash
# tests/scripts/arm_tools.sh CACHE_DIR: a compiler for 64-bit Arm, an emulator and the libraries that shardrun needs, from Debian's
# packages, unpacked below CACHE_DIR without installing anything. Prints the directory: tools/ is to run here, sysroot/ is what
# the program sees there. Exit status 77, with a reason on stderr, when it cannot be had.
set -eu
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/configs/packages.sh"

die() { echo "arm_tools.sh: $2" >&2; exit "$1"; }
[ $# = 1 ] || die 2 "usage: arm_tools.sh CACHE_DIR"
mkdir -p "$1" || die 77 "cannot make the directory $1"
cache=$(cd "$1" && pwd)
place=$cache/arm

# The development packages of the program and its tests.
target_packages() { awk '$1 ~ /^lib.*-dev$/ { print $1 }' <<<"$packages_build$packages_test_build"; }

# ROOM ARCHITECTURE WORDS...: apt-get with the machine's sources and keys, but lists and packages of its own in ROOM.
apt() {
	local room=$1 architecture=$2
	shift 2
	mkdir -p "$room/lists/partial" "$room/archives/partial"
	[ -e "$room/status" ] || : >"$room/status"
	apt-get -q -o Acquire::Retries=3 -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
		-o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Dir::State="$room" -o Dir::State::lists="$room/lists" \
		-o Dir::State::status="$room/status" -o Dir::Cache="$room" -o Dir::Cache::archives="$room/archives" "$@"
}

# ROOM ARCHITECTURE TO PACKAGES...: fetches them with what they depend on, and unpacks all but programs' texts.
unpack() {
	local room=$1 architecture=$2 to=$3 file
	shift 3
	timeout 300 bash -c "$(declare -f apt)"'; room=$1 architecture=$2; shift 2
		apt "$room" "$architecture" update && apt "$room" "$architecture" install -y --no-install-recommends --download-only "$@"' \
		- "$room" "$architecture" "$@" >"$room.log" 2>&1 ||
		die 77 "the packages for $architecture cannot be fetched: $(grep '^[EW]:' "$room.log" | tail -n 1 | cut -c1-200)"
	mkdir -p "$to"
	for file in "$room"/archives/*.deb; do
		[ -e "$file" ] || continue                  # all is installed
		dpkg-deb --fsys-tarfile "$file" | tar -x -C "$to" --exclude='./usr/bin/qemu-[!a]*' --exclude='./usr/bin/qemu-a[!a]*' \
			--exclude=./usr/share/{doc,man,info,locale,javascript,perl}
	done
}

# One at a time. $place appears complete, or not at all.
(
	flock 9
	[ -d "$place" ] && exit 0
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || die 77 "this is not a Debian, so nothing can be fetched"
	work=$(mktemp -d "$cache/tmp.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mkdir "$work/here" "$work/there" "$work/arm"
	cp /var/lib/dpkg/status "$work/here/status"         # what is installed is not fetched
	unpack "$work/here" "$(dpkg --print-architecture)" "$work/arm/tools" gcc-aarch64-linux-gnu qemu-user-static
	# shellcheck disable=SC2046 # a list of words
	unpack "$work/there" arm64 "$work/arm/sysroot" $(target_packages)
	rm -rf "$work/arm/sysroot/usr/bin" "$work/arm/sysroot/usr/lib/gcc"
	find "$work/arm/sysroot" -type l -lname '/*' | while read -r link; do   # they mean the sysroot's files
		ln -snf "$(realpath -m --relative-to "$(dirname "$link")" "$work/arm/sysroot$(readlink "$link")")" "$link"
	done
	mv "$work/arm" "$place"
) 9>"$cache/arm.lock" || exit $?
echo "$place"
