/* Pieces of a page: text made harmless, tables, and charts as inline SVG. Nothing here knows what it shows. Colours and fonts are those
 * of html_page.c, by class, so that a page follows the reader's light or dark setting. */
#ifndef SHARDRUN_LAUNCHER_HTML_H
#define SHARDRUN_LAUNCHER_HTML_H

#include "base/bytes.h"

#include <stdint.h>

/* The page begins and ends. */
void html_begin(struct bytes *to, const char *title);
void html_end(struct bytes *to);
/* A text from anywhere: as content or inside a quoted attribute it is only text. What is not UTF-8, or a control character, becomes
 * a replacement character. */
void html_text(struct bytes *to, const char *text);
/* A number as people read it: "1,234", "12.3", "0.042"; three digits that count. */
void html_number(struct bytes *to, double value);
/* "850 us", "12.3 ms", "4.5 s", "2 min 05 s", "3 h 07 min". */
void html_time(struct bytes *to, double us);
/* "512 B", "1.2 MB", in powers of 1000. */
void html_size(struct bytes *to, double bytes);

/* Values over time (n, not negative) as an area in colour 1 or 2: value i stands for times i * step_us .. (i + 1) * step_us, the last
 * one for up to end_us. unit: "tokens/s". */
void html_area(struct bytes *to, const char *title, const char *unit, int colour, const double *values, int n, double step_us,
	       double end_us);

/* Bars side by side whose borders are times, each `ratio` times the one before: bar i counts from first_us * ratio^i on. Marks: lines
 * with a label. */
struct html_mark { const char *label; double us; };
void html_bars(struct bytes *to, const char *title, const int64_t *counts, int n, double first_us, double ratio,
	       const struct html_mark *marks, int n_marks);

/* A row of a table of bars: parts of 1, in this order, the rest is left empty. */
enum { HTML_PARTS = 3 };
struct html_share { const char *label; double parts[HTML_PARTS]; };
/* names (HTML_PARTS): of the parts, for the legend. */
void html_shares(struct bytes *to, const char *const *names, const struct html_share *rows, int n);

/* Shares of 1 over time, a row each, the darker the more. values (n_rows, n). */
struct html_heat { const char *label; const double *values; };
void html_heat(struct bytes *to, const struct html_heat *rows, int n_rows, int n, double step_us, double end_us);

#endif
