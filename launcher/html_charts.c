/* Charts, in units of an SVG that is WIDE across and scaled to the page. Margins leave room for the larger letters that small screens
 * get (html_page.c). */
#include "launcher/html.h"

#include <math.h>
#include <stdio.h>

enum { WIDE = 720, LEFT = 92, RIGHT = 706, TOP = 14, BOTTOM = 174, HIGH = 212,
       LABEL_HIGH = 24,      /* of a line of the larger letters */
       ROW = 22,             /* of a heat map */
       LEVELS = 10 };

static void begin_svg(struct bytes *to, const char *title, int high)
{
	bytes_printf(to, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDE, high);
	html_text(to, title);
	bytes_printf(to, "\">\n");
}

static void heading(struct bytes *to, const char *title, const char *unit)
{
	bytes_printf(to, "<h3>");
	html_text(to, title);
	if (unit)
		bytes_printf(to, " <span class=\"soft\">(%s)</span>", unit);
	bytes_printf(to, "</h3>\n");
}

/* 1, 2 or 5 times a power of ten, at least this. */
static double round_up(double least)
{
	static const double steps[] = { 1, 2, 5 };
	double power = pow(10, floor(log10(least)));
	for (int i = 0; i < 3; i++)
		if (power * steps[i] >= least * 0.9999)
			return power * steps[i];
	return power * 10;
}

static double x_at(double us, double end_us) { return LEFT + (RIGHT - LEFT) * us / end_us; }

/* Between two labels of a time axis, so that there are at most six of them after 0. */
static double time_step(double end_us)
{
	static const double seconds[] = { 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400 };
	double least = end_us / 6;
	if (least <= 10e6)
		return round_up(least);
	for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
		if (seconds[i] * 1e6 >= least)
			return seconds[i] * 1e6;
	return ceil(least / 86400e6) * 86400e6;
}

/* Units so large that neighbours differ. */
static void time_label(struct bytes *to, double us, double step_us)
{
	static const struct { double unit; const char *name; } units[] = {
		{ 3600e6, "h" }, { 60e6, "min" }, { 1e6, "s" }, { 1e3, "ms" }, { 1, "\xc2\xb5s" }
	};
	int u = 0;
	while (u < 4 && fmod(step_us, units[u].unit) > 1e-6 * units[u].unit)
		u++;
	if (us > 0)
		bytes_printf(to, "%.0f %s", us / units[u].unit, units[u].name);
	else
		bytes_printf(to, "0");
}

static void time_axis(struct bytes *to, double end_us, int y)
{
	double step = time_step(end_us);
	bytes_printf(to, "<path class=\"grid\" d=\"M%d %dH%d\"/>\n", LEFT, y, RIGHT);
	for (int i = 0; i * step <= end_us * 1.0001; i++) {
		double x = x_at(i * step, end_us);
		bytes_printf(to, "<path class=\"grid\" d=\"M%.1f %dv5\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", x, y, x, y + 26,
			     x > RIGHT - 30 ? "end" : "middle");
		time_label(to, i * step, step);
		bytes_printf(to, "</text>\n");
	}
}

/* Lines and numbers from 0 to above `most`; gives what the top stands for. */
static double value_axis(struct bytes *to, double most, int top_y)
{
	double step = round_up(most > 0 ? most / 4 : 1), top = ceil(most / step * 0.9999) * step;
	top = top > 0 ? top : step;
	for (int i = 0; i * step <= top * 1.0001; i++) {
		double y = BOTTOM - (BOTTOM - top_y) * i * step / top;
		bytes_printf(to, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT, y, RIGHT,
			     LEFT - 8, y + 5);
		html_number(to, i * step);
		bytes_printf(to, "</text>\n");
	}
	return top;
}

/* The steps' upper edge, from the left end to the right. */
static void put_edge(struct bytes *to, const double *values, int n, double step_us, double end_us, double top)
{
	for (int i = 0; i < n; i++) {
		double to_us = (i + 1) * step_us < end_us ? (i + 1) * step_us : end_us;
		if (i == 0)
			bytes_printf(to, "M%d ", LEFT);
		else
			bytes_printf(to, "V");
		bytes_printf(to, "%.1fH%.1f", BOTTOM - (BOTTOM - TOP) * values[i] / top, x_at(to_us, end_us));
	}
}

void html_area(struct bytes *to, const char *title, const char *unit, int colour, const double *values, int n, double step_us,
	       double end_us)
{
	double most = 0;
	for (int i = 0; i < n; i++)
		most = values[i] > most ? values[i] : most;
	heading(to, title, unit);
	begin_svg(to, title, HIGH);
	double top = value_axis(to, most, TOP);
	time_axis(to, end_us, BOTTOM);
	bytes_printf(to, "<path class=\"area f%d\" d=\"", colour);
	put_edge(to, values, n, step_us, end_us, top);
	bytes_printf(to, "V%dH%dZ\"/>\n<path class=\"edge s%d\" d=\"", BOTTOM, LEFT, colour);
	put_edge(to, values, n, step_us, end_us, top);
	bytes_printf(to, "\"/>\n</svg>\n");
}

/* --- histograms --- */

/* Round times on an axis of logarithms: every 1, 2, 5 where there is room, else every power of ten. */
static void log_axis(struct bytes *to, double first_us, double last_us)
{
	static const double steps[] = { 1, 2, 5 };
	double decades = log10(last_us / first_us);
	int n_steps = decades <= 2 ? 3 : 1;
	bytes_printf(to, "<path class=\"grid\" d=\"M%d %dH%d\"/>\n", LEFT, BOTTOM, RIGHT);
	for (double power = pow(10, floor(log10(first_us))); power <= last_us; power *= 10)
		for (int i = 0; i < n_steps; i++) {
			double us = power * steps[i], x = LEFT + (RIGHT - LEFT) * log10(us / first_us) / decades;
			if (us < first_us * 0.999 || us > last_us * 1.001)
				continue;
			bytes_printf(to, "<path class=\"grid\" d=\"M%.1f %dv5\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", x, BOTTOM,
				     x, BOTTOM + 26, x > RIGHT - 30 ? "end" : "middle");
			html_time(to, us);
			bytes_printf(to, "</text>\n");
		}
}

static double mark_x(const struct html_mark *mark, double first_us, double last_us)
{
	return LEFT + (RIGHT - LEFT) * log(mark->us / first_us) / log(last_us / first_us);
}

/* Each label on a line of its own, so that none hides another, and above all lines. */
static void put_marks(struct bytes *to, const struct html_mark *marks, int n_marks, double first_us, double last_us)
{
	for (int i = 0; i < n_marks; i++)
		bytes_printf(to, "<path class=\"mark\" d=\"M%.1f %dV%d\"/>", mark_x(&marks[i], first_us, last_us), TOP + i * LABEL_HIGH - 8,
			     BOTTOM);
	for (int i = 0; i < n_marks; i++) {
		double x = mark_x(&marks[i], first_us, last_us);
		int is_right = x > (LEFT + RIGHT) / 2, y = TOP + i * LABEL_HIGH;
		bytes_printf(to, "<text class=\"on\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", is_right ? x - 6 : x + 6, y + 4,
			     is_right ? "end" : "start");
		html_text(to, marks[i].label);
		bytes_printf(to, " ");
		html_time(to, marks[i].us);
		bytes_printf(to, "</text>\n");
	}
}

void html_bars(struct bytes *to, const char *title, const int64_t *counts, int n, double first_us, double ratio,
	       const struct html_mark *marks, int n_marks)
{
	int top_y = TOP + n_marks * LABEL_HIGH;
	double wide = (double)(RIGHT - LEFT) / n, last_us = first_us * pow(ratio, n);
	int64_t most = 0;
	for (int i = 0; i < n; i++)
		most = counts[i] > most ? counts[i] : most;
	heading(to, title, NULL);
	begin_svg(to, title, HIGH);
	double top = value_axis(to, (double)most, top_y);
	log_axis(to, first_us, last_us);
	bytes_printf(to, "<path class=\"f1\" d=\"");
	for (int i = 0; i < n; i++)
		if (counts[i])
			bytes_printf(to, "M%.1f %dV%.1fh%.1fV%dz", LEFT + i * wide + 0.5, BOTTOM,
				     BOTTOM - (BOTTOM - top_y) * (double)counts[i] / top, wide - 1, BOTTOM);
	bytes_printf(to, "\"/>\n");
	put_marks(to, marks, n_marks, first_us, last_us);
	bytes_printf(to, "</svg>\n");
}

/* --- shares --- */

static void put_legend(struct bytes *to, const char *const *names)
{
	bytes_printf(to, "<div class=\"legend\">");
	for (int p = 0; p < HTML_PARTS; p++)
		if (names[p]) {
			bytes_printf(to, "<span><i class=\"b%d\"></i>", p + 1);
			html_text(to, names[p]);
			bytes_printf(to, "</span>");
		}
	bytes_printf(to, "<span><i class=\"empty\"></i>idle</span></div>\n");
}

void html_shares(struct bytes *to, const char *const *names, const struct html_share *rows, int n)
{
	put_legend(to, names);
	bytes_printf(to, "<div class=\"share\">\n");
	for (int i = 0; i < n; i++) {
		bytes_printf(to, "<span>");
		html_text(to, rows[i].label);
		bytes_printf(to, "</span><span class=\"bar\">");
		for (int p = 0; p < HTML_PARTS; p++)
			if (names[p])
				bytes_printf(to, "<i class=\"b%d\" style=\"width:%.2f%%\"></i>", p + 1, rows[i].parts[p] * 100);
		bytes_printf(to, "</span><span>");
		for (int p = 0; p < HTML_PARTS; p++)
			if (names[p]) {
				bytes_printf(to, "%s%.1f %% ", p ? ", " : "", rows[i].parts[p] * 100);
				html_text(to, names[p]);
			}
		bytes_printf(to, "</span>\n");
	}
	bytes_printf(to, "</div>\n");
}

static int level_of(double share)
{
	int level = (int)(share * LEVELS + 0.5);
	return level < 0 ? 0 : level > LEVELS ? LEVELS : level;
}

/* The cells of one level, a run of neighbours as one. */
static void put_level(struct bytes *to, const struct html_heat *rows, int n_rows, int n, double step_us, double end_us, int level)
{
	int began = 0;
	for (int r = 0; r < n_rows; r++)
		for (int i = 0, to_cell; i < n; i = to_cell) {
			to_cell = i + 1;
			if (level_of(rows[r].values[i]) != level)
				continue;
			while (to_cell < n && level_of(rows[r].values[to_cell]) == level)
				to_cell++;
			double left = x_at(i * step_us, end_us), right = x_at(to_cell * step_us < end_us ? to_cell * step_us : end_us, end_us);
			if (!began++)
				bytes_printf(to, "<path class=\"f1\" fill-opacity=\"%.1f\" d=\"", (double)level / LEVELS);
			bytes_printf(to, "M%.1f %dh%.1fv%dh-%.1fz", left, TOP + r * ROW + 1, right - left, ROW - 2, right - left);
		}
	if (began)
		bytes_printf(to, "\"/>\n");
}

void html_heat(struct bytes *to, const struct html_heat *rows, int n_rows, int n, double step_us, double end_us)
{
	int bottom = TOP + n_rows * ROW;
	bytes_printf(to, "<div class=\"legend\"><span>0 %%</span><svg viewBox=\"0 0 110 12\" style=\"width:110px\" role=\"img\" "
			 "aria-label=\"from pale to dark\">");
	for (int level = 0; level <= LEVELS; level++)
		bytes_printf(to, "<path class=\"%s\" fill-opacity=\"%.1f\" d=\"M%d 0h10v12h-10z\"/>", level ? "f1" : "track",
			     level ? (double)level / LEVELS : 1, level * 10);
	bytes_printf(to, "</svg><span>100 %%</span></div>\n");
	begin_svg(to, "busy share over time", bottom + 36);
	for (int r = 0; r < n_rows; r++) {
		bytes_printf(to, "<path class=\"track\" d=\"M%d %dH%dv%dH%dz\"/><text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT,
			     TOP + r * ROW + 1, RIGHT, ROW - 2, LEFT, LEFT - 8, TOP + r * ROW + ROW / 2 + 5);
		html_text(to, rows[r].label);
		bytes_printf(to, "</text>\n");
	}
	for (int level = 1; level <= LEVELS; level++)
		put_level(to, rows, n_rows, n, step_us, end_us, level);
	time_axis(to, end_us, bottom + 2);
	bytes_printf(to, "</svg>\n");
}
