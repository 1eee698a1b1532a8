/* The page that `--report` writes: one file, without scripts, fonts or anything else from elsewhere. html.h draws, this says what. */
#ifndef SHARDRUN_LAUNCHER_REPORT_HTML_H
#define SHARDRUN_LAUNCHER_REPORT_HTML_H

#include "launcher/html.h"
#include "launcher/observe.h"
#include "runtime/trace.h"

struct report_page {
	const char *command;
	const struct session *s;
	const struct outcome *how;
	const struct grid_traffic *traffic;   /* (GRID_TRAFFIC_ROWS) */
	struct trace_rank *ranks;             /* by rank; their timelines are brought to one width */
	long long end_us;                     /* by the head's clock */
};

void report_html(const struct report_page *p, struct bytes *to);

/* --- report_html.c and report_html_plan.c --- */
void report_html_plan(const struct report_page *p, struct bytes *to);
void report_html_traffic(const struct report_page *p, struct bytes *to);
void report_html_about(const struct report_page *p, struct bytes *to);

#endif
