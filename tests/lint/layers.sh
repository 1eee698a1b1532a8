#!/bin/sh
# Includes point one way, base <- topology <- parallel <- runtime <- launcher, and each library is known in one place.
. "$(dirname "$0")/common.sh"

# header | who may include it (extended regular expressions on whole names)
owners='
mpi\.h|mpi-ext\.h             parallel/comm_mpi[a-z0-9_]*\.[ch]
nccl\.h                       parallel/comm_nccl[a-z0-9_]*\.[ch]
hwloc\.h|hwloc/.*             topology/(source_|hwloc_|binding)[a-z0-9_]*\.[ch]
cuda.*\.h|nvml\.h             (runtime/kernels/cuda/.*|topology/nvml[a-z0-9_]*\.[ch])
yaml\.h                       launcher/(recipe|yaml)[a-z0-9_]*\.[ch]
jansson\.h                    base/json\.[ch]
pcre2\.h                      runtime/tokenizer[a-z0-9_]*\.[ch]
utf8proc\.h                   runtime/tokenizer[a-z0-9_]*\.[ch]
'

# "file "header or "file <header, one a line
includes() {
	stripped $rooms | sed -n 's/^\([^:]*\):[0-9]*:[[:blank:]]*#[[:blank:]]*include[[:blank:]]*\([<"][^">]*\)[">].*/\1 \2/p'
}

found=$(includes | awk -v owners="$(printf '%s' "$owners" | sed 's/\\/\\\\/g')" -v rooms="$rooms" '
	BEGIN {
		n = split(owners, line, "\n")
		for (i = 1; i <= n; i++)
			if (split(line[i], word, " ") == 2) { header[++rules] = "^(" word[1] ")$"; owner[rules] = word[2] }
		n = split(rooms, line, " ")
		for (i = 1; i <= n; i++)
			level[line[i]] = i
	}
	{
		name = substr($2, 2)
		split($1, mine, "/")
		split(name, theirs, "/")
		if (substr($2, 1, 1) == "\"") {
			if (!level[theirs[1]] || (getline text < name) < 0)
				print $1 " includes \"" name "\": quotes are for the rooms own headers, written from the root"
			else if (level[theirs[1]] > level[mine[1]])
				print $1 " includes \"" name "\": " mine[1] " must not know " theirs[1]
			close(name)
		}
		for (i = 1; i <= rules; i++)
			if (name ~ header[i] && $1 !~ "^" owner[i] "$")
				print $1 " includes " name ": only " owner[i] " may"
	}')
faults=$(printf '%s' "$found" | grep -c .)
[ -z "$found" ] || printf '%s\n' "$found"
finish "$(sources $rooms | grep -c .)" "source files"
