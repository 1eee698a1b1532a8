#!/bin/sh
# Includes point one way, base <- topology <- parallel <- runtime <- launcher, and each library is known in one place.
. "$(dirname "$0")/common.sh"

# header | who may include it (an extended regular expression on the file's name)
owners='
mpi\.h|mpi-ext\.h             parallel/comm_mpi[a-z0-9_]*\.[ch]
nccl\.h                       parallel/comm_nccl[a-z0-9_]*\.[ch]
hwloc\.h|hwloc/.*             topology/(source_[a-z0-9_]*|hwloc_[a-z0-9_]*|binding[a-z0-9_]*)\.[ch]
cuda.*\.h|nvml\.h             (runtime/kernels/cuda/.*|topology/nvml[a-z0-9_]*\.[ch])
yaml\.h                       launcher/(recipe|yaml)[a-z0-9_]*\.[ch]
jansson\.h                    base/json\.[ch]
pcre2\.h                      runtime/(tok|pre|regex|bpe|spm)[a-z0-9_]*\.[ch]
utf8proc\.h                   runtime/(tok|norm|unicode|pre|bpe|spm)[a-z0-9_]*\.[ch]
'

level() {
	case $1 in
	base) echo 1;; topology) echo 2;; parallel) echo 3;; runtime) echo 4;; launcher) echo 5;; *) echo 0;;
	esac
}

n=0
for file in $(sources $rooms); do
	n=$((n + 1))
	mine=$(level "${file%%/*}")
	includes=$(awk -f "$here/strip.awk" "$file" |
		sed -n 's/^[ \t]*#[ \t]*include[ \t]*\([<"][^">]*\)[">].*/\1/p')
	for include in $includes; do
		name=${include#?}
		case $include in
		'"'*)
			theirs=$(level "${name%%/*}")
			if [ "$theirs" = 0 ] || [ ! -e "$name" ]; then
				fault "$file includes \"$name\": quotes are for the rooms' own headers, written from the root"
			elif [ "$theirs" -gt "$mine" ]; then
				fault "$file includes \"$name\": ${file%%/*} must not know ${name%%/*}"
			fi;;
		esac
		while read -r header owner; do
			[ -n "$header" ] || continue
			printf '%s\n' "$name" | grep -qxE "$header" || continue
			printf '%s\n' "$file" | grep -qxE "$owner" || fault "$file includes $name: only $owner may"
		done <<-TEXT
		$owners
		TEXT
	done
done
finish $n "source files"
