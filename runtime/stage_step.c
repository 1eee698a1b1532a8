/* A step of a stage, its exchanges with the other tp ranks, and where its time goes. */
#include "runtime/stage.h"

enum err stage_show(struct stage *s, unsigned arrays)
{
	struct range parts[LAYOUT_MAX_TP];
	for (int t = 0; t < s->grid->layout.tp; t++)
		parts[t] = range_part(s->n_rows, 1, s->grid->layout.tp, t);
	long long began = trace_now(s->trace);
	enum err e = s->is_dealt ? dealt_show(s->dealt, arrays, parts) : ERR_OK;
	stage_exchanged(s, began);
	return e;
}

enum err stage_bring_sums(struct stage *s)
{
	long long began = trace_now(s->trace);
	enum err e = s->is_dealt ? dealt_bring(s->dealt, s->n_rows)
				 : comm_allreduce(s->grid->axis[AXIS_TP], s->acc, (size_t)(s->n_rows * (s->m->n_embd + 1)),
						  COMM_I64, COMM_SUM);
	stage_exchanged(s, began);
	return e;
}

void stage_waited(struct stage *s, long long began_us)
{
	long long now = clock_us();
	s->waiting_us += now - began_us;
	if (!s->trace)
		return;
	timeline_add_span(&s->trace->timeline, TIMELINE_WAITING, began_us, now);
	trace_end(s->trace, TRACE_WAIT_ROWS, began_us);
}

/* Waiting is one run of time near the step's beginning, so what is left is busy from there on. */
static void record(struct stage *s, long long began_us, long long waited_us, int64_t exchange_us)
{
	struct trace *t = s->trace;
	timeline_add_span(&t->timeline, TIMELINE_BUSY, began_us + waited_us, clock_us());
	timeline_add(&t->timeline, TIMELINE_STEPS, clock_us(), 1);
	t->now.exchange_us = (int32_t)exchange_us;
	trace_end(t, TRACE_STEP, began_us);
}

enum err stage_step(struct stage *s, const struct step *step, struct step_results *out, float *all_logits)
{
	long long began = clock_us(), waited = s->waiting_us;
	int64_t exchanged = s->exchange_us;
	enum err e = stage_forward(s, step, out, all_logits);
	waited = s->waiting_us - waited;
	s->busy_us += clock_us() - began - waited;
	s->n_steps++;
	if (s->trace)
		record(s, began, waited, s->exchange_us - exchanged);
	return e;
}
