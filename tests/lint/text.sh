#!/bin/sh
# Nothing in the tree puts work off or names a folder of the machine that it was written on; pages name files that exist.
. "$(dirname "$0")/common.sh"

# Everything people write: sources, scripts, pages, recipes. Not data, not build folders, not these scripts.
n=0
for file in $(find . \( -name '.git' -o -name 'build*' -o -path ./tests/lint -o -path ./tests/golden -o \
		-path ./configs/models \) -prune -o -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' \
		-o -name '*.py' -o -name '*.md' -o -name '*.yaml' -o -name '*.cmake' -o -name 'CMakeLists.txt' -o -name '*.in' \
		-o -name demo -o -name check -o -path ./.ci/run \) -print | sort); do
	n=$((n + 1))
	found=$(grep -nwE 'TODO|FIXME|XXX|HACK' "$file" | head -n 1)
	[ -z "$found" ] || fault "$file: line $found: do it, or file it"
	found=$(grep -nE '(^|[^A-Za-z0-9_.$})*-])/(work|home|root)/' "$file" | head -n 1)
	[ -z "$found" ] || fault "$file: line $found: a folder of one machine"
done
# A source that a page names in backquotes is there.
known=$(find . \( -name .git -o -name 'build*' \) -prune -o -name '*.[ch]' -print)
for page in *.md docs/*.md; do
	[ -e "$page" ] || continue
	for name in $(grep -oE '`([a-z0-9_]+/)*[a-z0-9_]+\.[ch]`' "$page" | tr -d '`' | sort -u); do
		printf '%s\n' "$known" | grep -qF "/$name" || fault "$page names $name, which is not there"
	done
done
finish $n "files of text"
