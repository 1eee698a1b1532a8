/* What was run: bytes between ranks, the plan, the model, the command. */
#include "launcher/report_html.h"

#include <inttypes.h>

static void begin_cell(struct bytes *to, int is_number) { bytes_printf(to, is_number ? "<td class=\"n\">" : "<td>"); }

static void text_cell(struct bytes *to, const char *text)
{
	begin_cell(to, 0);
	html_text(to, text);
	bytes_printf(to, "</td>");
}

static void number_cell(struct bytes *to, double value)
{
	begin_cell(to, 1);
	html_number(to, value);
	bytes_printf(to, "</td>");
}

static void size_cell(struct bytes *to, uint64_t bytes)
{
	begin_cell(to, 1);
	html_size(to, (double)bytes);
	bytes_printf(to, "</td>");
}

static void range_cell(struct bytes *to, struct range r)
{
	if (range_size(r) > 0)
		bytes_printf(to, "<td class=\"n\">%" PRId64 "\xe2\x80\x93%" PRId64 "</td>", r.begin, r.end - 1);
	else
		bytes_printf(to, "<td class=\"n\">none</td>");
}

void report_html_traffic(const struct report_page *p, struct bytes *to)
{
	bytes_printf(to, "<section><h2>Bytes between ranks</h2>\n<p class=\"soft\">What all ranks handed in together, by communicator.</p>\n"
			 "<div class=\"scroll\"><table><tr><th>axis</th><th class=\"n\">ranks</th><th class=\"n\">nodes</th><th>link</th>"
			 "<th class=\"n\">calls</th><th class=\"n\">bytes</th><th class=\"n\">between nodes</th></tr>\n");
	for (int i = 0; i < GRID_TRAFFIC_ROWS; i++) {
		const struct grid_traffic *r = &p->traffic[i];
		bytes_printf(to, "<tr>");
		text_cell(to, r->axis);
		number_cell(to, r->ranks);
		number_cell(to, r->nodes);
		text_cell(to, r->link);
		number_cell(to, (double)r->stats.calls);
		size_cell(to, r->stats.bytes);
		size_cell(to, r->stats.bytes_between_nodes);
		bytes_printf(to, "</tr>\n");
	}
	bytes_printf(to, "</table></div></section>\n");
}

static void put_rank(const struct report_page *p, int rank, struct bytes *to)
{
	const struct plan_rank *k = &p->s->plan.ranks[rank];
	bytes_printf(to, "<tr><td class=\"n\">%d</td>", rank);
	text_cell(to, p->s->place.cluster.nodes[k->member.node].host);
	bytes_printf(to, "<td class=\"n\">%d</td><td class=\"n\">%d</td><td class=\"n\">%d</td><td class=\"n\">%d</td><td class=\"n\">%d</td>",
		     k->member.tp, k->member.pp, k->member.ep, k->member.dp, k->threads);
	range_cell(to, k->shard.layers);
	range_cell(to, k->shard.heads);
	if (p->s->model.n_expert)
		range_cell(to, k->shard.experts);
	size_cell(to, k->weights_bytes);
	size_cell(to, k->kv_bytes);
	size_cell(to, k->buffer_bytes);
	bytes_printf(to, "</tr>\n");
}

void report_html_plan(const struct report_page *p, struct bytes *to)
{
	const struct plan *plan = &p->s->plan;
	const struct layout *l = &plan->layout;
	bytes_printf(to, "<section><h2>Plan</h2>\n<p>%d rank%s on %d node%s: tp %d, pp %d, ep %d, dp %d.</p>\n", plan->n_ranks,
		     plan->n_ranks == 1 ? "" : "s", p->s->place.cluster.n_nodes, p->s->place.cluster.n_nodes == 1 ? "" : "s", l->tp, l->pp,
		     l->ep, l->dp);
	bytes_printf(to, "<p class=\"soft\">Per replica %" PRId64 " sequences at once, %" PRId64 " tokens in a step, up to %d steps under way, "
			 "context %" PRId64 ", KV cache of %" PRId64 " pages in %s.</p>\n", plan->limits.sequences, plan->limits.step_tokens,
		     plan->limits.in_flight, plan->context, plan->limits.n_pages, kv_type_names[plan->limits.kv_type]);
	bytes_printf(to, "<div class=\"scroll\"><table><tr><th class=\"n\">rank</th><th>host</th><th class=\"n\">tp</th><th class=\"n\">pp</th>"
			 "<th class=\"n\">ep</th><th class=\"n\">dp</th><th class=\"n\">threads</th><th class=\"n\">layers</th>"
			 "<th class=\"n\">heads</th>%s<th class=\"n\">weights</th><th class=\"n\">KV cache</th>"
			 "<th class=\"n\">buffers</th></tr>\n", p->s->model.n_expert ? "<th class=\"n\">experts</th>" : "");
	for (int r = 0; r < plan->n_ranks; r++)
		put_rank(p, r, to);
	bytes_printf(to, "</table></div></section>\n");
}

static void term(struct bytes *to, const char *name, const char *text)
{
	bytes_printf(to, "<dt>%s</dt><dd>", name);
	html_text(to, text);
	bytes_printf(to, "</dd>\n");
}

void report_html_about(const struct report_page *p, struct bytes *to)
{
	const struct model *m = &p->s->model;
	uint64_t bytes = 0;
	for (int64_t i = 0; i < weights_count(p->s->files); i++)
		bytes += weights_at(p->s->files, i)->bytes;
	bytes_printf(to, "<section><h2>About</h2>\n<p>Command:</p>\n<pre>");
	html_text(to, p->command);
	bytes_printf(to, "</pre>\n<dl>\n");
	term(to, "version", "shardrun " SHARDRUN_VERSION);
	term(to, "model", m->name);
	term(to, "format", weights_format_name(p->s->files));
	bytes_printf(to, "<dt>weights</dt><dd>");
	html_size(to, (double)bytes);
	bytes_printf(to, "</dd>\n");
	term(to, "architecture", m->arch->name);
	bytes_printf(to, "<dt>shape</dt><dd>%" PRId64 " layers, hidden size %" PRId64 ", %" PRId64 " heads (%" PRId64 " for keys and values), "
			 "vocabulary %" PRId64, m->n_layers, m->n_embd, m->n_head, m->n_kv_head, m->n_vocab);
	if (m->n_expert)
		bytes_printf(to, ", %" PRId64 " experts, %" PRId64 " used", m->n_expert, m->n_expert_used);
	bytes_printf(to, "</dd>\n");
	term(to, "kernels", p->s->kernels->name);
	term(to, "transport", comm_mpi_version());
	bytes_printf(to, "<dt>loading</dt><dd>");
	html_time(to, p->s->load_s * 1e6);
	bytes_printf(to, "</dd>\n</dl></section>\n");
}
