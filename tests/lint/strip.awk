# Prints C source without comments and the insides of strings and character constants: "file:line:text", line for line.
FNR == 1 { comment = 0 }
{
	out = ""
	n = length($0)
	for (i = 1; i <= n; i++) {
		c = substr($0, i, 1)
		two = substr($0, i, 2)
		if (comment) {
			if (two == "*/") { comment = 0; i++; out = out " " }
			continue
		}
		if (quote != "") {
			if (c == "\\") { i++; continue }
			if (c == quote) { quote = ""; out = out c }
			continue
		}
		if (two == "/*") { comment = 1; i++; continue }
		if (two == "//") break
		# the quotes of #include "x" stay, with what they hold
		if (c == "\"" && out !~ /^[ \t]*#[ \t]*include/) quote = c
		if (c == "'") quote = c
		out = out c
	}
	quote = ""
	print FILENAME ":" FNR ":" out
}
