#include "launcher/observe.h"

#include "base/mem.h"
#include "launcher/private_file.h"
#include "launcher/report_html.h"
#include "launcher/trace_file.h"

#include <string.h>

enum err observe_check(const struct options *o)
{
	if (o->report)
		TRY(private_file_try(o->report));
	return o->trace ? private_file_try(o->trace) : ERR_OK;
}

enum err observe_begin(struct observe *b, const struct options *o, struct session *s)
{
	int32_t wants[2] = { o->report || o->trace, o->trace != NULL };
	*b = (struct observe){ .o = o };
	TRY(comm_bcast(s->world, wants, sizeof wants, 0));
	if (!wants[0])
		return ERR_OK;
	b->wants_trace = wants[1];
	TRY(trace_create(s->world, wants[1] ? trace_usual_spans(comm_size(s->world)) : 0, &b->trace));
	s->stage->trace = b->trace;
	return ERR_OK;
}

/* --- the command --- */

static void put_word(struct bytes *to, const char *word)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=:,+@%";
	bytes_printf(to, " ");
	if (*word && strspn(word, plain) == strlen(word)) {
		bytes_printf(to, "%s", word);
		return;
	}
	bytes_printf(to, "'");
	for (const char *c = word; *c; c++)
		bytes_printf(to, *c == '\'' ? "'\\%c'" : "%c", *c);
	bytes_printf(to, "'");
}

static void put_option(struct bytes *to, const char *name, const char *value)
{
	if (!value)
		return;
	put_word(to, name);
	put_word(to, value);
}

void observe_command(const struct options *o, struct bytes *to)
{
	bytes_printf(to, "shardrun %s", command_name(o->command));
	if (o->recipe)
		put_word(to, o->recipe);
	put_option(to, "--model", o->model);
	put_option(to, "--prompt-file", o->prompt_file);
	put_option(to, "--input", o->input);
	put_option(to, "--output", o->output);
	put_option(to, "--journal", o->journal);
	put_option(to, "--time-limit", o->time_limit);
	for (int i = 0; i < o->n_sets; i++)
		put_option(to, o->sets[i].option, o->sets[i].value);
	if (o->unordered)
		bytes_printf(to, " --unordered");
	if (o->strict)
		bytes_printf(to, " --strict");
	put_option(to, "--report", o->report);
	put_option(to, "--trace", o->trace);
}

/* --- the files --- */

struct files {
	struct trace_rank *mine;     /* every rank's; the rest is the head's */
	struct trace_rank *ranks;
	struct trace_file *trace;
	struct bytes command, page;
};

static enum err prepare(const struct observe *b, const struct session *s, int is_head, struct files *h)
{
	const struct stage *st = s->stage;
	TRY(MEM_NEW(1, struct trace_rank, &h->mine));
	*h->mine = (struct trace_rank){ .busy_us = st->busy_us, .waiting_us = st->waiting_us, .exchange_us = st->exchange_us,
					.steps = st->n_steps };
	if (!is_head)
		return ERR_OK;
	TRY(MEM_NEW((size_t)comm_size(s->world), struct trace_rank, &h->ranks));
	observe_command(b->o, &h->command);
	TRY(h->command.error);
	return b->o->trace ? trace_file_open(b->o->trace, s, b->trace->timeline.began_us, &h->trace) : ERR_OK;
}

static enum err write_page(const char *path, const struct bytes *page)
{
	FILE *file;
	TRY(page->error);
	TRY(private_file_open(path, &file));
	fwrite(bytes_text(page), 1, page->size, file);
	return private_file_close(path, file);
}

static enum err write_files(const struct observe *b, const struct session *s, const struct outcome *how, const struct grid_traffic *traffic,
			    struct files *h)
{
	struct trace_file *file = h->trace;
	h->trace = NULL;
	if (file)
		TRY(trace_file_end(file, h->ranks, bytes_text(&h->command)));
	if (!b->o->report)
		return ERR_OK;
	report_html(&(struct report_page){ .command = bytes_text(&h->command), .s = s, .how = how, .traffic = traffic, .ranks = h->ranks,
					   .end_us = b->end_us }, &h->page);
	return write_page(b->o->report, &h->page);
}

enum err observe_end(struct observe *b, struct session *s, const struct outcome *how)
{
	struct grid_traffic traffic[GRID_TRAFFIC_ROWS];
	struct files h = { 0 };
	if (!b->trace)
		return ERR_OK;
	struct trace_taker taker = { .take = trace_file_take };
	enum err e;
	b->end_us = clock_us();
	s->stage->trace = NULL;
	TRY_OR(destroy, e, grid_traffic(s->grid, traffic));
	TRY_OR(destroy, e, comm_agree(s->world, prepare(b, s, how != NULL, &h)));
	taker.arg = h.trace;
	e = trace_gather(b->trace, s->world, h.mine, h.ranks, b->wants_trace ? &taker : NULL);
	TRY_OR(destroy, e, comm_agree(s->world, e));
	e = comm_agree(s->world, how ? write_files(b, s, how, traffic, &h) : ERR_OK);
destroy:
	trace_file_close(h.trace);
	bytes_free(&h.command);
	bytes_free(&h.page);
	mem_free(h.ranks);
	mem_free(h.mine);
	observe_close(b);
	return e;
}

void observe_close(struct observe *b)
{
	trace_destroy(b->trace);
	b->trace = NULL;
}
