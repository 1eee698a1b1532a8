#!/bin/sh
# No file of a room over 800 lines, no function over 100 lines but those in long_functions.txt, no line over 150 columns
# (125 is the aim; what stands in strings is not counted).
. "$(dirname "$0")/common.sh"
allowed=${2:-$here/long_functions.txt}

# Functions are found by their braces in the first column, as kernel style has them.
long_functions() {                                  # FILE: "name lines" of those over 100 lines
	awk '
		/^[A-Za-z_].*\(/ && !/;[ \t]*$/ { name = $0; sub(/\(.*/, "", name); sub(/.*[^A-Za-z0-9_]/, "", name) }
		/^\{/ { begin = NR }
		/^\}/ && begin { if (NR - begin - 1 > 100) print name, NR - begin - 1; begin = 0 }' "$1"
}

n=0
list=$(mktemp)
for file in $(sources $rooms); do
	n=$((n + 1))
	lines=$(wc -l <"$file")
	[ "$lines" -le 800 ] || fault "$file: $lines lines, more than 800: look for the idea that wants a file of its own"
	long_functions "$file" >"$list"
	while read -r name length; do
		grep -qxF "$file $name" "$allowed" ||
			fault "$file: $name has $length lines, more than 100 (long_functions.txt lists the exceptions)"
	done <"$list"
	wide=$(expand -t 8 "$file" | awk '{ gsub(/"([^"\\]|\\.)*"/, "\"\"") } length($0) > 150 { print NR; exit }')
	[ -z "$wide" ] || fault "$file: line $wide is wider than 150 columns"
done
rm -f "$list"
finish $n "source files"
