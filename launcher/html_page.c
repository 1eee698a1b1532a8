/* The frame of a page, and text on it. */
#include "launcher/html.h"

#include "launcher/words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char style[] =
	":root{color-scheme:light dark;--bg:#f6f7f8;--card:#fff;--ink:#1a1e23;--soft:#59636e;--line:#dde2e7;--track:#e9edf1;"
	"--c1:#2563c4;--c2:#b8560f;--c3:#8f99a3}\n"
	"@media(prefers-color-scheme:dark){:root{--bg:#121518;--card:#1b1f23;--ink:#e6e9ec;--soft:#9ba6b0;--line:#333a42;--track:#2a3037;"
	"--c1:#6da7ff;--c2:#f2a35b;--c3:#6b7680}}\n"
	"*{box-sizing:border-box}\n"
	"body{margin:0 auto;padding:20px 16px 48px;max-width:980px;background:var(--bg);color:var(--ink);"
	"font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}\n"
	"h1{font-size:1.55em;line-height:1.25;margin:.2em 0}h2{font-size:1.15em;margin:0 0 .5em}"
	"h3{font-size:1em;font-weight:600;margin:1.2em 0 .2em}\n"
	"p{margin:.3em 0}.soft{color:var(--soft)}a{color:var(--c1)}\n"
	"section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;margin:16px 0}\n"
	".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:16px 0}\n"
	".tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}\n"
	".tile b{display:block;font-size:1.45em;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}"
	".tile span{color:var(--soft);font-size:.87em}\n"
	".warn{border-left:4px solid var(--c2)}\n"
	".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.93em}\n"
	"th{text-align:left;font-weight:600;color:var(--soft);border-bottom:1px solid var(--line)}\n"
	"th,td{padding:4px 14px 4px 0;white-space:nowrap}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\n"
	"tr+tr td{border-top:1px solid var(--line)}td.wrap{white-space:normal;overflow-wrap:anywhere}\n"
	"code,pre{font:.9em/1.5 ui-monospace,SFMono-Regular,Menlo,\"DejaVu Sans Mono\",monospace}"
	"pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3em 0}\n"
	"dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:0}dt{color:var(--soft)}"
	"dd{margin:0;overflow-wrap:anywhere}\n"
	"svg{display:block;width:100%;height:auto}svg text{font-size:13px;fill:var(--soft);font-variant-numeric:tabular-nums}\n"
	"svg text.on{paint-order:stroke;stroke:var(--card);stroke-width:5px;stroke-linejoin:round}\n"
	".grid{stroke:var(--line);stroke-width:1;fill:none}.mark{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 3}\n"
	".area{fill-opacity:.2}.edge{fill:none;stroke-width:1.8;stroke-linejoin:round}\n"
	".f1{fill:var(--c1)}.f2{fill:var(--c2)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.track{fill:var(--track)}\n"
	".share{display:grid;grid-template-columns:max-content 1fr max-content;gap:6px 12px;align-items:center;font-size:.93em;"
	"font-variant-numeric:tabular-nums}\n"
	".bar{display:flex;height:14px;border-radius:4px;overflow:hidden;background:var(--track);min-width:80px}"
	".bar i{display:block;height:100%}\n"
	".b1{background:var(--c1)}.b2{background:var(--c2)}.b3{background:var(--c3)}\n"
	".legend{display:flex;flex-wrap:wrap;gap:4px 18px;color:var(--soft);font-size:.87em;margin:.2em 0 .7em}"
	".legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}"
	".legend i.empty{background:var(--track)}\n"
	"@media(max-width:600px){svg text{font-size:21px}section{padding:12px}body{padding:12px 8px 32px}.tile b{font-size:1.2em}"
	".share{grid-template-columns:max-content 1fr}.share>:nth-child(3n){grid-column:1/-1;margin:-6px 0 4px;color:var(--soft)}}\n"
	"@media print{section,.tile{break-inside:avoid}}\n";

void html_begin(struct bytes *to, const char *title)
{
	bytes_printf(to, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
	html_text(to, title);
	bytes_printf(to, "</title>\n<style>\n");
	bytes_put(to, style, sizeof style - 1);
	bytes_printf(to, "</style>\n</head>\n<body>\n");
}

void html_end(struct bytes *to) { bytes_printf(to, "</body>\n</html>\n"); }

static const char *escape(char c)
{
	switch (c) {
	case '&': return "&amp;";
	case '<': return "&lt;";
	case '>': return "&gt;";
	case '"': return "&quot;";
	case '\'': return "&#39;";
	default: return NULL;
	}
}

void html_text(struct bytes *to, const char *text)
{
	size_t size = strlen(text);
	for (size_t i = 0, n; i < size; i += n ? n : 1) {
		n = text_character(text + i, size - i);
		unsigned char c = (unsigned char)text[i];
		const char *as = escape(text[i]);
		if (n == 0 || (c < ' ' && c != '\n' && c != '\t') || c == 0x7f)
			as = "\xef\xbf\xbd";
		bytes_put(to, as ? as : text + i, as ? strlen(as) : n);
	}
}

/* --- numbers --- */

void html_number(struct bytes *to, double value)
{
	char digits[64];
	int decimals = value >= 99.95 || value == 0 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3;
	if (value == floor(value) && value < 100)
		decimals = 0;
	snprintf(digits, sizeof digits, "%.*f", decimals, value);
	size_t whole = strcspn(digits, ".");
	for (size_t i = 0; digits[i]; i++) {
		if (i > 0 && i < whole && (whole - i) % 3 == 0)
			bytes_put(to, ",", 1);
		bytes_put(to, &digits[i], 1);
	}
}

void html_time(struct bytes *to, double us)
{
	static const struct { double from, unit; const char *name; } units[] = {
		{ 0, 1, "\xc2\xb5s" }, { 999.5, 1e3, "ms" }, { 999.5e3, 1e6, "s" }
	};
	long long s = (long long)(us * 1e-6 + 0.5);
	int u = us <= 0 || us >= units[2].from ? 2 : us >= units[1].from ? 1 : 0;
	if (s >= 3600)
		bytes_printf(to, "%lld h %02lld min", s / 3600, s / 60 % 60);
	else if (s >= 120)
		bytes_printf(to, "%lld min %02lld s", s / 60, s % 60);
	else {
		html_number(to, us / units[u].unit);
		bytes_printf(to, " %s", units[u].name);
	}
}

void html_size(struct bytes *to, double bytes)
{
	static const char *const names[] = { "B", "kB", "MB", "GB", "TB", "PB" };
	int i = 0;
	for (; bytes >= 999.5 && i < 5; i++)
		bytes /= 1000;
	html_number(to, bytes);
	bytes_printf(to, " %s", names[i]);
}
