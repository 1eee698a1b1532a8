/* Pre-tokenisers by the names that GGUF files give them (tokenizer.ggml.pre). The expressions are those of the models' own
 * tokenizer.json files where those are public, else the ones llama.cpp uses for the name. Each list is applied in turn. */
#include "runtime/tokenizer_parts.h"

#include <string.h>

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LLAMA3_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char gpt2_pattern[] = GPT2;

static const char *const gpt2[] = { GPT2, NULL };
static const char *const llama3[] = { CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" LLAMA3_TAIL, NULL };
static const char *const qwen2[] = { CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" LLAMA3_TAIL, NULL };
static const char *const qwen35[] = { CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
	"| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", NULL };
static const char *const smollm[] = { "\\p{N}", GPT2, NULL };
static const char *const falcon[] = { "[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]", NULL };
static const char *const unnamed[] = { "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]", NULL };
static const char *const deepseek_coder[] = { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
	"[一-龥ࠀ-一가-\\x{d7ff}]+", "\\p{N}", NULL };
static const char *const deepseek_llm[] = {
	"[\\r\\n]",
	"\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\\x{1f7d}"
	"ᾀ-ᾴᾶ-ᾼ\\x{1fbe}ῂ-ῄῆ-ῌῐ-\\x{1fd3}ῖ-\\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\x{2126}ℨ\\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-"
	"ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
	"\\s?[!-/:-~！-／：-～‘-‟\\x{3000}-。]+",
	"\\s+$",
	"[一-龥ࠀ-一가-\\x{d7ff}]+",
	"\\p{N}+",
	NULL,
};
static const char *const deepseek_v3[] = {
	"\\p{N}{1,3}",
	"[一-龥぀-ゟ゠-ヿ]+",
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
	"|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*"
	"|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
	NULL,
};
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const char *const tekken[] = { "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+"
	"|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*|\\p{N}"
	CASED_TAIL, NULL };
static const char *const gpt4o[] = { "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTION "?"
	"|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" CONTRACTION "?|\\p{N}{1,3}" CASED_TAIL, NULL };

static const struct named_pattern table[] = {
	{ "default", unnamed, false, false },
	{ "gpt-2", gpt2, false, false },
	{ "phi-2", gpt2, false, false },
	{ "mpt", gpt2, false, false },
	{ "olmo", gpt2, false, false },
	{ "exaone4", gpt2, false, false },
	{ "gigachat", gpt2, false, false },
	{ "llama-bpe", llama3, true, true },
	{ "llama3", llama3, true, true },
	{ "llama-v3", llama3, true, true },
	{ "falcon3", llama3, true, true },
	{ "pixtral", llama3, true, true },
	{ "lfm2", llama3, true, true },
	{ "dbrx", llama3, false, false },
	{ "smaug-bpe", llama3, false, false },
	{ "chatglm-bpe", llama3, false, false },
	{ "glm4", llama3, true, false },
	{ "qwen2", qwen2, false, false },
	{ "deepseek-r1-qwen", qwen2, false, false },
	{ "stablelm2", qwen2, false, false },
	{ "megrez", qwen2, false, false },
	{ "hunyuan", qwen2, false, false },
	{ "grok-2", qwen2, false, false },
	{ "qwen35", qwen35, false, false },
	{ "smollm", smollm, false, false },
	{ "starcoder", smollm, false, false },
	{ "refact", smollm, false, false },
	{ "command-r", smollm, false, false },
	{ "codeshell", smollm, false, false },
	{ "exaone", smollm, false, false },
	{ "minerva-7b", smollm, false, false },
	{ "falcon", falcon, false, false },
	{ "deepseek-llm", deepseek_llm, false, false },
	{ "deepseek-coder", deepseek_coder, false, false },
	{ "deepseek-v3", deepseek_v3, false, false },
	{ "tekken", tekken, true, true },
	{ "gpt-4o", gpt4o, false, false },
	{ "llama4", gpt4o, false, false },
};

const struct named_pattern *named_pattern_find(const char *name, size_t bytes)
{
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (strlen(table[i].name) == bytes && !memcmp(table[i].name, name, bytes))
			return &table[i];
	return NULL;
}

void named_pattern_list(struct bytes *out)
{
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		bytes_printf(out, "%s%s", i ? ", " : "", table[i].name);
}
