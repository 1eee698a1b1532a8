#include "launcher/timings.h"

#include "launcher/words.h"

#include <string.h>

static long long whole_us(const struct timed_answer *a) { return a->ended_us - a->came_us; }

static void note_slow(struct timings *t, const struct timed_answer *a)
{
	int at = t->n_slowest;
	while (at > 0 && whole_us(a) > whole_us(&t->slowest[at - 1]))
		at--;
	if (at == TIMINGS_SLOWEST)
		return;
	t->n_slowest += t->n_slowest < TIMINGS_SLOWEST;
	memmove(&t->slowest[at + 1], &t->slowest[at], (size_t)(t->n_slowest - at - 1) * sizeof *a);
	t->slowest[at] = *a;
}

void timings_add(struct timings *t, const struct timed_answer *a)
{
	t->answers++;
	t->answer_tokens += a->n_tokens;
	if (!a->first_us)
		return;
	histogram_add(&t->of[TIMING_FIRST], (double)(a->first_us - a->came_us));
	histogram_add(&t->of[TIMING_WHOLE], (double)whole_us(a));
	if (a->n_tokens > 1)
		histogram_add(&t->of[TIMING_EACH], (double)(a->ended_us - a->first_us) / (double)(a->n_tokens - 1));
	note_slow(t, a);
}

void timed_answer_name(struct timed_answer *a, const char *name)
{
	size_t size = strlen(name), at = 0;
	for (size_t n; at < size; at += n) {
		n = text_character(name + at, size - at);
		n = n ? n : 1;
		if (at + n >= sizeof a->name)
			break;
	}
	memcpy(a->name, name, at);
	a->name[at] = '\0';
}
