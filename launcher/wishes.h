/* What a recipe wishes of every request. */
#ifndef SHARDRUN_LAUNCHER_WISHES_H
#define SHARDRUN_LAUNCHER_WISHES_H

#include "launcher/recipe.h"
#include "runtime/schedule.h"

struct wishes {
	struct request request;      /* all but the prompt and where the answer goes; borrows the lists below */
	struct token_bias *biases;   /* owned, as the next */
	int32_t *stop_tokens;
};
/* ERR_RECIPE for a generation.logit_bias that cannot be read. */
enum err wishes_read(const struct recipe *r, struct wishes *out);
void wishes_free(struct wishes *w);

#endif
