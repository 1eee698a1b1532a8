# Shared by the lint scripts, which take the root of a source tree. For sh.
set -u
root=${1:?usage: $0 ROOT}
here=$(cd "$(dirname "$0")" && pwd)
cd "$root" || exit 2
rooms="base topology parallel runtime launcher"
faults=0

# The C sources of rooms, one a line. A name with a blank in it is not ours.
sources() {                                         # ROOM...
	for room in "$@"; do
		[ ! -d "$room" ] || find "$room" -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \)
	done | sort
}

# Their lines as "file:line:text", without comments and what stands in strings.
stripped() { list=$(sources "$@"); [ -z "$list" ] || awk -f "$here/strip.awk" $list; }

fault() { echo "$*"; faults=$((faults + 1)); }

# Ends the script; says what was looked at, so that an empty tree does not pass unseen.
finish() {                                          # COUNT what
	[ "$1" -gt 0 ] || fault "found no $2 below $(pwd)"
	echo "$1 $2, $faults faults"
	[ "$faults" = 0 ]
	exit
}
