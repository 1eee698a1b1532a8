/* What happened in the run: numbers, throughput, latency, and who was busy when. */
#include "launcher/report_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

enum { MOST_ROWS = 32,        /* of ranks or stages in a chart */
       POINTS = 96 };         /* of a curve, at most */

static const char *file_name(const char *path)
{
	const char *name = path;
	for (const char *c = path; *c; c++)
		if (*c == '/' && c[1])
			name = c + 1;
	return name;
}

/* --- at the top --- */

static void put_tile(struct bytes *to, const char *label, const struct bytes *value)
{
	bytes_printf(to, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", bytes_text(value), label);
}

static void count_tile(struct bytes *to, const char *label, double value)
{
	struct bytes text = { 0 };
	html_number(&text, value);
	put_tile(to, label, &text);
	bytes_free(&text);
}

static void time_tile(struct bytes *to, const char *label, double us)
{
	struct bytes text = { 0 };
	html_time(&text, us);
	put_tile(to, label, &text);
	bytes_free(&text);
}

static void put_top(const struct report_page *p, struct bytes *to)
{
	const struct outcome *how = p->how;
	time_t now = time(NULL);
	struct tm tm;
	char date[64] = "";
	if (localtime_r(&now, &tm))
		strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S %Z", &tm);
	bytes_printf(to, "<header><p class=\"soft\">shardrun report</p>\n<h1>");
	html_text(to, file_name(p->s->model.name[0] ? p->s->model.name : "model"));
	bytes_printf(to, "</h1>\n<p class=\"soft\">%s</p></header>\n", date);
	bytes_printf(to, "<section%s><p>", how->is_cut_short ? " class=\"warn\"" : "");
	html_text(to, how->state);
	bytes_printf(to, "</p></section>\n<div class=\"tiles\">\n");
	count_tile(to, "answer tokens/s", (double)how->answer_tokens / (how->seconds > 0 ? how->seconds : 1));
	count_tile(to, "requests", (double)how->requests);
	count_tile(to, "of them errors", (double)how->errors);
	if (how->resumed >= 0)
		count_tile(to, "results from earlier runs", (double)how->resumed);
	count_tile(to, "answer tokens", (double)how->answer_tokens);
	count_tile(to, "prompt tokens computed", (double)how->prompt_tokens);
	count_tile(to, "prompt tokens found in the cache", (double)how->shared_tokens);
	time_tile(to, "time", how->seconds * 1e6);
	time_tile(to, "waited for input or another run", how->waited_s * 1e6);
	bytes_printf(to, "</div>\n");
}

/* --- over time --- */

/* How curves are cut: `together` buckets of a timeline make a point of `step_us`. */
struct cut { int n, together; double step_us, end_us; };

/* Points so wide that several steps fall into each; else the curve is one of steps, not of rates. */
static struct cut cut_time(const struct report_page *p)
{
	const struct timeline *t = &p->ranks[0].timeline;
	double end_us = (double)(p->end_us - t->began_us), wanted = end_us / POINTS;
	double step = p->how->steps > 0 ? end_us / (double)p->how->steps : 0;
	end_us = end_us > 1 ? end_us : 1;
	wanted = wanted > 4 * step ? wanted : 4 * step;
	wanted = wanted < end_us / 12 ? wanted : end_us / 12;
	struct cut c = { .end_us = end_us, .together = (int)ceil(wanted / (double)t->width_us) };
	c.together = c.together > 0 ? c.together : 1;
	c.step_us = (double)c.together * (double)t->width_us;
	c.n = (int)ceil(end_us / c.step_us);
	c.n = c.n < TIMELINE_BUCKETS ? c.n : TIMELINE_BUCKETS;
	return c;
}

static int64_t sum_of(const struct timeline *t, enum timeline_row row, const struct cut *c, int i)
{
	int64_t sum = 0;
	for (int b = i * c->together; b < (i + 1) * c->together && b < TIMELINE_BUCKETS; b++)
		sum += t->sums[row][b];
	return sum;
}

/* The last point may be short. */
static double width_of(const struct cut *c, int i)
{
	double left = c->end_us - i * c->step_us;
	return left < c->step_us ? left : c->step_us;
}

static void put_rate(const struct report_page *p, const struct cut *c, enum timeline_row row, const char *title, int colour,
		     struct bytes *to)
{
	double values[TIMELINE_BUCKETS];
	int n = c->n;
	if (n > 1 && width_of(c, n - 1) < c->step_us / 4)   /* a sliver says little: it joins the point before it */
		n--;
	for (int i = 0; i < n; i++) {
		double us = i == n - 1 ? c->end_us - i * c->step_us : c->step_us;
		int64_t sum = sum_of(&p->ranks[0].timeline, row, c, i) + (i == n - 1 && n < c->n ? sum_of(&p->ranks[0].timeline, row, c, n) : 0);
		values[i] = (double)sum / (us * 1e-6);
	}
	html_area(to, title, "tokens/s", colour, values, n, c->step_us, c->end_us);
}

static void put_throughput(const struct report_page *p, const struct cut *c, struct bytes *to)
{
	bytes_printf(to, "<section><h2>Throughput</h2>\n");
	put_rate(p, c, TIMELINE_ANSWER, "Answer tokens", 1, to);
	put_rate(p, c, TIMELINE_PROMPT, "Prompt tokens, as computed", 2, to);
	bytes_printf(to, "<p class=\"soft\">Time since the first step could begin; each point is the mean of ");
	html_time(to, c->step_us);
	bytes_printf(to, ". %" PRId64 " steps, ", p->how->steps);
	html_time(to, p->how->steps ? c->end_us / (double)p->how->steps : 0);
	bytes_printf(to, " for each.");
	if (p->how->put_back)
		bytes_printf(to, " Pages ran out %" PRId64 " times: a sequence lost its own, and was computed again.", p->how->put_back);
	bytes_printf(to, "</p></section>\n");
}

/* --- latency --- */

static const char *const timing_names[TIMING_COUNT] = {
	[TIMING_FIRST] = "Time to the first token", [TIMING_EACH] = "Time for each token after it", [TIMING_WHOLE] = "Whole answer"
};

static void put_percentiles(const struct timings *t, struct bytes *to)
{
	static const double shares[] = { 0.5, 0.9, 0.95, 0.99 };
	bytes_printf(to, "<div class=\"scroll\"><table><tr><th></th><th class=\"n\">answers</th><th class=\"n\">mean</th>"
			 "<th class=\"n\">p50</th><th class=\"n\">p90</th><th class=\"n\">p95</th><th class=\"n\">p99</th>"
			 "<th class=\"n\">most</th></tr>\n");
	for (int k = 0; k < TIMING_COUNT; k++) {
		const struct histogram *h = &t->of[k];
		bytes_printf(to, "<tr><td>%s</td><td class=\"n\">", timing_names[k]);
		html_number(to, (double)h->n);
		bytes_printf(to, "</td><td class=\"n\">");
		html_time(to, histogram_mean(h));
		for (int i = 0; i < 4; i++) {
			bytes_printf(to, "</td><td class=\"n\">");
			html_time(to, histogram_percentile(h, shares[i]));
		}
		bytes_printf(to, "</td><td class=\"n\">");
		html_time(to, h->most_us);
		bytes_printf(to, "</td></tr>\n");
	}
	bytes_printf(to, "</table></div>\n");
}

static void put_histogram(const struct histogram *h, const char *title, struct bytes *to)
{
	enum { BARS = 40 };
	int64_t counts[BARS];
	if (!h->n)
		return;
	double first = (h->least_us > 1 ? h->least_us : 1) * 0.9, last = (h->most_us > 2 ? h->most_us : 2) * 1.1;
	double ratio = pow(last / first, 1.0 / BARS);
	for (int i = 0; i < BARS; i++)
		counts[i] = histogram_between(h, first * pow(ratio, i), first * pow(ratio, i + 1));
	struct html_mark marks[] = { { "p50", histogram_percentile(h, 0.5) }, { "p95", histogram_percentile(h, 0.95) } };
	html_bars(to, title, counts, BARS, first, ratio, marks, 2);
}

static void put_slowest(const struct timings *t, struct bytes *to)
{
	if (!t->n_slowest)
		return;
	bytes_printf(to, "<h3>The slowest answers</h3>\n<div class=\"scroll\"><table><tr><th>request</th><th class=\"n\">prompt tokens</th>"
			 "<th class=\"n\">answer tokens</th><th class=\"n\">first token</th><th class=\"n\">whole</th></tr>\n");
	for (int i = 0; i < t->n_slowest; i++) {
		const struct timed_answer *a = &t->slowest[i];
		bytes_printf(to, "<tr><td class=\"wrap\">");
		html_text(to, a->name);
		bytes_printf(to, "</td><td class=\"n\">");
		html_number(to, (double)a->n_prompt);
		bytes_printf(to, "</td><td class=\"n\">");
		html_number(to, (double)a->n_tokens);
		bytes_printf(to, "</td><td class=\"n\">");
		html_time(to, (double)(a->first_us - a->came_us));
		bytes_printf(to, "</td><td class=\"n\">");
		html_time(to, (double)(a->ended_us - a->came_us));
		bytes_printf(to, "</td></tr>\n");
	}
	bytes_printf(to, "</table></div>\n");
}

static void put_latency(const struct report_page *p, struct bytes *to)
{
	const struct timings *t = p->how->timings;
	bytes_printf(to, "<section><h2>Latency</h2>\n<p class=\"soft\">Counted from when a request was given to the engine, so time in its "
			 "queue is part of it. Charts: number of answers; times grow by equal ratios from left to right.</p>\n");
	put_percentiles(t, to);
	for (int k = 0; k < TIMING_COUNT; k++)
		put_histogram(&t->of[k], timing_names[k], to);
	put_slowest(t, to);
	bytes_printf(to, "</section>\n");
}

/* --- who was busy --- */

/* Rows of the charts: ranks when there are few, else stages, or several stages together. Ordered by stage, replica, tp. */
static int n_rows(const struct report_page *p)
{
	const struct plan *plan = &p->s->plan;
	if (plan->n_ranks <= MOST_ROWS)
		return plan->n_ranks;
	return plan->layout.pp < MOST_ROWS ? plan->layout.pp : MOST_ROWS;
}

static int row_of(const struct report_page *p, int rank)
{
	const struct plan *plan = &p->s->plan;
	const struct member *m = &plan->ranks[rank].member;
	if (plan->n_ranks <= MOST_ROWS)
		return (m->pp * plan->layout.dp + m->dp) * plan->layout.tp + m->tp;
	return (int)((int64_t)m->pp * n_rows(p) / plan->layout.pp);
}

struct rows {
	int n;
	char labels[MOST_ROWS][32];
	int n_ranks[MOST_ROWS];
	struct html_share shares[MOST_ROWS];
	double heat[MOST_ROWS][TIMELINE_BUCKETS];
};

static void add_rank(const struct report_page *p, int rank, const struct cut *c, struct rows *rows)
{
	const struct trace_rank *k = &p->ranks[rank];
	int row = row_of(p, rank), is_rank = p->s->plan.n_ranks <= MOST_ROWS;
	double *parts = rows->shares[row].parts;
	snprintf(rows->labels[row], sizeof rows->labels[row], is_rank ? "rank %d" : "stage %d",
		 is_rank ? rank : p->s->plan.ranks[rank].member.pp);
	rows->shares[row].label = rows->labels[row];
	rows->n_ranks[row]++;
	parts[0] += (double)(k->busy_us - k->exchange_us) / c->end_us;
	parts[1] += (double)k->exchange_us / c->end_us;
	parts[2] += (double)k->waiting_us / c->end_us;
	for (int i = 0; i < c->n; i++)
		rows->heat[row][i] += (double)sum_of(&k->timeline, TIMELINE_BUSY, c, i) / width_of(c, i);
}

static void make_rows(const struct report_page *p, const struct cut *c, struct rows *rows)
{
	rows->n = n_rows(p);
	for (int r = 0; r < p->s->plan.n_ranks; r++)
		add_rank(p, r, c, rows);
	for (int i = 0; i < rows->n; i++) {
		for (int part = 0; part < HTML_PARTS; part++)
			rows->shares[i].parts[part] /= rows->n_ranks[i];
		for (int k = 0; k < c->n; k++)
			rows->heat[i][k] /= rows->n_ranks[i];
	}
}

static void put_stages(const struct report_page *p, const struct cut *c, struct bytes *to)
{
	const struct layout *l = &p->s->plan.layout;
	bytes_printf(to, "<h3>Stages</h3>\n<div class=\"scroll\"><table><tr><th class=\"n\">stage</th><th class=\"n\">layers</th>"
			 "<th class=\"n\">ranks</th><th class=\"n\">busy</th><th class=\"n\">steps of a rank</th>"
			 "<th class=\"n\">time of a step</th></tr>\n");
	for (int stage = 0; stage < l->pp; stage++) {
		double busy_us = 0, steps = 0;
		int n = 0;
		struct range layers = { 0, 0 };
		for (int r = 0; r < p->s->plan.n_ranks; r++) {
			if (p->s->plan.ranks[r].member.pp != stage)
				continue;
			busy_us += (double)p->ranks[r].busy_us;
			steps += (double)p->ranks[r].steps;
			layers = p->s->plan.ranks[r].shard.layers;
			n++;
		}
		bytes_printf(to, "<tr><td class=\"n\">%d</td><td class=\"n\">%" PRId64 "\xe2\x80\x93%" PRId64 "</td><td class=\"n\">%d</td>"
				 "<td class=\"n\">%.1f %%</td><td class=\"n\">", stage, layers.begin, layers.end - 1, n,
			     n ? 100 * busy_us / n / c->end_us : 0);
		html_number(to, n ? steps / n : 0);
		bytes_printf(to, "</td><td class=\"n\">");
		html_time(to, steps > 0 ? busy_us / steps : 0);
		bytes_printf(to, "</td></tr>\n");
	}
	bytes_printf(to, "</table></div>\n");
}

static void put_busy(const struct report_page *p, const struct cut *c, struct bytes *to)
{
	const struct layout *l = &p->s->plan.layout;
	const char *const names[HTML_PARTS] = { "computing", l->tp > 1 ? "in exchanges with tp ranks" : NULL,
						l->pp > 1 ? "waiting for rows" : NULL };
	struct html_heat heat[MOST_ROWS];
	struct rows *rows;
	if (mem_alloc(1, sizeof *rows, "the report", &rows)) {
		to->error = to->error ? to->error : ERR_MEMORY;
		return;
	}
	make_rows(p, c, rows);
	bytes_printf(to, "<section><h2>Who was busy</h2>\n<p class=\"soft\">Busy is time inside a step without waiting for the rows of "
			 "the stage before; exchanges with tp ranks are part of it, with waiting for them. Idle ranks had no step.</p>\n");
	put_stages(p, c, to);
	bytes_printf(to, "<h3>Shares of the whole time</h3>\n");
	html_shares(to, names, rows->shares, rows->n);
	for (int i = 0; i < rows->n; i++)
		heat[i] = (struct html_heat){ rows->labels[i], rows->heat[i] };
	bytes_printf(to, "<h3>Busy share over time</h3>\n");
	html_heat(to, heat, rows->n, c->n, c->step_us, c->end_us);
	bytes_printf(to, "</section>\n");
	mem_free(rows);
}

void report_html(const struct report_page *p, struct bytes *to)
{
	char title[200];
	long long width = 0;
	for (int r = 0; r < p->s->plan.n_ranks; r++)
		width = p->ranks[r].timeline.width_us > width ? p->ranks[r].timeline.width_us : width;
	for (int r = 0; r < p->s->plan.n_ranks; r++)
		timeline_widen(&p->ranks[r].timeline, width);
	while (p->end_us - p->ranks[0].timeline.began_us > width * TIMELINE_BUCKETS) {
		width *= 2;
		for (int r = 0; r < p->s->plan.n_ranks; r++)
			timeline_widen(&p->ranks[r].timeline, width);
	}
	struct cut c = cut_time(p);
	snprintf(title, sizeof title, "shardrun report: %s", p->s->model.name);
	html_begin(to, title);
	put_top(p, to);
	put_throughput(p, &c, to);
	put_latency(p, to);
	put_busy(p, &c, to);
	report_html_traffic(p, to);
	report_html_plan(p, to);
	report_html_about(p, to);
	html_end(to);
}
