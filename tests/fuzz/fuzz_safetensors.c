/* A safetensors file. */
#include "tests/fuzz/fuzz_weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_weights(&weights_safetensors, data, size);
	return 0;
}
