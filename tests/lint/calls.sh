#!/bin/sh
# Below launcher/ nothing ends the process or writes to the terminal: errors are returned, lines go through base/log.h.
. "$(dirname "$0")/common.sh"

# word (an extended regular expression) | who may use it all the same | what is right instead
# (isolate.c ends a child of its own; utf8proc hands out strings of malloc)
rules='
(exit|_Exit|quick_exit|abort)[[:blank:]]*\(             ^:                                        return_an_error
_exit[[:blank:]]*\(                                     ^(topology/isolate|parallel/(watch|comm_mpi[a-z0-9_]*))\.c:  return_an_error
(printf|vprintf|puts|putchar|perror)[[:blank:]]*\(      ^:                                        base/log.h
(stdout|stderr)([^A-Za-z0-9_]|$)                        ^(base/log|parallel/watch)\.c:            base/log.h
(gets|sprintf|vsprintf|strtok|system|popen)[[:blank:]]*\(  ^:                                     the_checked_function
(malloc|calloc|realloc|strdup)[[:blank:]]*\(            ^base/mem\.c:                             base/mem.h
free[[:blank:]]*\(                                      ^(base/mem|runtime/tokenizer_normal)\.c:  base/mem.h
'

below="base topology parallel runtime"
text=$(mktemp)
stripped $below >"$text"
while read -r word owner instead; do
	[ -n "$word" ] || continue
	found=$(grep -E "^[^:]*:[0-9]*:(|.*[^A-Za-z0-9_.>])$word" "$text" | grep -vE "$owner")
	[ -z "$found" ] || fault "$found
	(use $(printf '%s' "$instead" | tr _ ' '))"
done <<TEXT
$rules
TEXT
rm -f "$text"
finish "$(sources $below | grep -c .)" "source files"
