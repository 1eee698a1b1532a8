/* Rotary position embedding: the frequencies of a model and the angles of a position. */
#ifndef SHARDRUN_RUNTIME_ROPE_H
#define SHARDRUN_RUNTIME_ROPE_H

#include "runtime/model.h"

/* freq (D/2), in float as the reference implementations hold it: theta^(-2i/D), then scaled (linear; llama3, Llama 3.1's
 * smooth blend between wavelengths; or divided by factors (D/2) when not NULL). */
void rope_frequencies(const struct model *m, const float *factors, float *freq);
/* cos and sin (D/2 each) of position pos. */
void rope_angles(const float *freq, int64_t n_half, int64_t pos, float *cos, float *sin);

#endif
