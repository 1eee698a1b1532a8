/* Prompts: where they come from, and the text that comes back, shown as it grows. */
#ifndef SHARDRUN_LAUNCHER_PROMPTS_H
#define SHARDRUN_LAUNCHER_PROMPTS_H

#include "launcher/options.h"
#include "launcher/recipe.h"
#include "launcher/wishes.h"
#include "runtime/schedule.h"
#include "runtime/session.h"
#include "runtime/stop_text.h"
#include "runtime/tokenizer.h"

struct prompts {
	int64_t n;
	char **texts;                /* NULL where the prompt was given as ids */
	struct tokens *tokens;
	struct request *requests;
	struct wishes wishes;        /* of all */
	int64_t n_answers, n_each;   /* prompt i's are n_each from i * n_each on; the next five have one of each */
	struct bytes *answers;       /* text that is certain */
	struct stop_text *stop_texts;
	struct detokenizer *detokenizers;
	int64_t *shown;              /* bytes of each answer on stdout */
	unsigned char *ended;        /* the answer's text is complete */
	int64_t current;             /* the one that is being shown: the first that has not ended */
	int prompt_shown;            /* in front of it */
	struct bytes piece;          /* of one token */
	const struct recipe *recipe; /* borrowed, as the two below */
	const struct tokenizer *tokenizer;
	const struct options *options;
	int quiet;                   /* show nothing (--json) */
	int unread;                  /* stdout takes no more: answers end, prompts_end says why */
};

/* Reads prompts (--prompt, --prompt-file, --prompt-ids, stdin one per line) and tokenizes them. Rank 0 only. */
enum err prompts_read(const struct options *o, const struct recipe *r, const struct tokenizer *t, struct prompts **out);
void prompts_destroy(struct prompts *p);
/* For struct generation: takes a token, shows what is certain, ends the answer at a stop string. */
int prompts_token(void *prompts, int64_t index, const struct answer *a, int32_t token);
/* Ends all texts and shows what is left. */
enum err prompts_end(struct prompts *p);

#endif
