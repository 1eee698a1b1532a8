#include "launcher/trace_file.h"

#include "base/bytes.h"
#include "base/json.h"
#include "base/mem.h"
#include "launcher/private_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trace_file {
	FILE *file;
	const char *path;
	const struct session *s;
	long long began_us;
	struct bytes text;           /* room */
};

enum err trace_file_open(const char *path, const struct session *s, long long began_us, struct trace_file **out)
{
	struct trace_file *f;
	enum err e;
	TRY(MEM_NEW(1, struct trace_file, &f));
	*f = (struct trace_file){ .path = path, .s = s, .began_us = began_us };
	TRY_OR(close, e, private_file_open(path, &f->file));
	fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", f->file);   /* what cannot be written is seen at the end */
	*out = f;
	return ERR_OK;
close:
	trace_file_close(f);
	return e;
}

static enum err write_text(struct trace_file *f)
{
	TRY(f->text.error);
	if (fwrite(bytes_text(&f->text), 1, f->text.size, f->file) != f->text.size)
		return ERR(IO, "%s cannot be written: %s", f->path, strerror(errno));
	bytes_clear(&f->text);
	return ERR_OK;
}

static void put_span(struct trace_file *f, int node, int rank, const struct trace_span *s)
{
	bytes_printf(&f->text, "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRId64 ",\"dur\":%d,\"args\":{\"step\":%d",
		     trace_names[s->what], node, rank, (int64_t)(s->begin_us - f->began_us), s->us, s->step);
	if (f->s->plan.layout.dp > f->s->plan.lane_replicas)
		bytes_printf(&f->text, ",\"lane\":%d", s->lane);
	bytes_printf(&f->text, ",\"tokens\":%d,\"slices\":%d", s->tokens, s->slices);
	if (s->what == TRACE_STEP && f->s->plan.layout.tp > 1)
		bytes_printf(&f->text, ",\"exchange_us\":%d", s->exchange_us);
	bytes_printf(&f->text, "}},\n");
}

enum err trace_file_take(void *file, int rank, const struct trace_span *spans, int64_t n)
{
	struct trace_file *f = file;
	for (int64_t i = 0; i < n; i++)
		put_span(f, f->s->plan.ranks[rank].member.node, rank, &spans[i]);
	return write_text(f);
}

/* Takes the value over. Without memory it is null, which is JSON too. */
static void put_json(struct bytes *to, json_t *value)
{
	char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	bytes_printf(to, "%s", text ? text : "null");
	free(text);
	json_decref(value);
}

/* A host's name may be any bytes. */
static json_t *name_json(const char *text)
{
	json_t *name = json_string(text);
	return name ? name : json_string("?");
}

static void put_name(struct bytes *to, const char *what, int node, int rank, const char *name)
{
	bytes_printf(to, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", what, node, rank);
	put_json(to, name_json(name));
	bytes_printf(to, "}},\n");
}

static void put_names(struct trace_file *f)
{
	const struct session *s = f->s;
	char name[400];
	for (int i = 0; i < s->place.cluster.n_nodes; i++) {
		snprintf(name, sizeof name, "node %d: %s", i, s->place.cluster.nodes[i].host);
		put_name(&f->text, "process_name", i, 0, name);
	}
	for (int r = 0; r < s->plan.n_ranks; r++) {
		const struct member *m = &s->plan.ranks[r].member;
		snprintf(name, sizeof name, "rank %d: stage %d, tp %d, replica %d", r, m->pp, m->tp, m->dp);
		put_name(&f->text, "thread_name", m->node, r, name);
	}
}

/* What does not belong to a moment. */
static json_t *notes(const struct trace_file *f, const struct trace_rank *ranks, const char *command)
{
	json_t *dropped = json_array(), *offsets = json_array();
	json_int_t all = 0;
	for (int r = 0; r < f->s->plan.n_ranks; r++) {
		json_array_append_new(dropped, json_integer((json_int_t)ranks[r].n_dropped));
		json_array_append_new(offsets, json_integer((json_int_t)ranks[r].offset_us));
		all += (json_int_t)ranks[r].n_dropped;
	}
	json_t *o = json_pack("{s:s,s:I,s:o,s:o}", "version", SHARDRUN_VERSION, "dropped_spans", all, "dropped_spans_of_rank", dropped,
			      "clock_offset_us_of_rank", offsets);
	if (o)
		json_object_set_new(o, "command", name_json(command));
	if (o && all)
		json_object_set_new(o, "note", json_string("each rank keeps its last spans; the earlier ones were dropped"));
	return o;
}

enum err trace_file_end(struct trace_file *f, const struct trace_rank *ranks, const char *command)
{
	put_names(f);
	if (f->text.size >= 2)
		f->text.size -= 2;           /* no comma after the last one */
	bytes_printf(&f->text, "\n],\"otherData\":");
	put_json(&f->text, notes(f, ranks, command));
	bytes_printf(&f->text, "}\n");
	enum err e = write_text(f);
	if (!e)
		e = private_file_close(f->path, f->file);
	else
		fclose(f->file);
	f->file = NULL;
	trace_file_close(f);
	return e;
}

void trace_file_close(struct trace_file *f)
{
	if (!f)
		return;
	if (f->file)
		fclose(f->file);
	bytes_free(&f->text);
	mem_free(f);
}
