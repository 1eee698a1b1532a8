/* Expressions of tokenizer files, which are written for Oniguruma (Ruby syntax), run by PCRE2.
 *
 * The two agree on what these files use, except here, and a pattern is rewritten or refused accordingly:
 *   \s \S \w \W    by other tables: written out as Unicode properties
 *   ^ $            match at every line: PCRE2_MULTILINE
 *   \uHHHH         a character by number: written \x{HHHH}
 *   \h \H          hexadecimal digits there, blanks here: refused
 *   [a[bc]] [a&&b] sets of sets: refused
 *   \C             a byte, here; would cut a character: refused
 * Steps are limited, so that a hostile pattern ends in an error. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/tokenizer_parts.h"

#include "base/mem.h"
#include "runtime/printable.h"

#include <pcre2.h>
#include <string.h>

enum { PATTERN_MAX_BYTES = 65536, MATCH_LIMIT = 10000000, JIT_STACK_BYTES = 1 << 20 };

#define SPACE_SET                                                                                                           \
	"\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE_SET "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}" \
	"\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD_SET "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

struct regex { pcre2_code *code; pcre2_general_context *general; };
struct matcher {
	pcre2_general_context *general;
	pcre2_match_context *context;
	pcre2_match_data *data;
	pcre2_jit_stack *stack;
};

static void *allocate(size_t bytes, void *unused)
{
	void *block;
	(void)unused;
	return mem_alloc(bytes, 1, "expression", &block) ? NULL : block;
}

static void release(void *block, void *unused)
{
	(void)unused;
	mem_free(block);
}

static enum err no_memory(void) { return ERR(MEMORY, "no memory for an expression"); }

static enum err refuse(const char *name, const char *pattern, size_t bytes, const char *why)
{
	char room[PRINTABLE_BYTES];
	return ERR(MODEL, "%s: the expression \"%s\" %s", name, printable(room, pattern, bytes), why);
}

/* One escape outside or inside a set; *at is at the backslash and moves past what was read. */
static enum err put_escape(const char *name, const char *pattern, size_t bytes, size_t *at, bool in_set, struct bytes *out)
{
	char c = *at + 1 < bytes ? pattern[*at + 1] : '\0';
	const char *set = NULL;
	bool negated = false;
	switch (c) {
	case 's': set = SPACE_SET; break;
	case 'S': set = in_set ? NOT_SPACE_SET : SPACE_SET; negated = true; break;
	case 'w': set = WORD_SET; break;
	case 'W': set = WORD_SET; negated = true; break;
	case 'u':
		if (bytes - *at >= 6 && strspn(pattern + *at + 2, "0123456789abcdefABCDEF") >= 4) {
			bytes_printf(out, "\\x{%.4s}", pattern + *at + 2);
			*at += 6;
			return ERR_OK;
		}
		break;
	case 'h':
	case 'H': return refuse(name, pattern, bytes, "uses \\h or \\H, which is not supported");
	default: break;
	}
	if (in_set && c == 'W')
		return refuse(name, pattern, bytes, "uses \\W inside a set, which is not supported");
	if (!set)
		bytes_put(out, pattern + *at, *at + 1 < bytes ? 2 : 1);
	else if (in_set)
		bytes_put(out, set, strlen(set));
	else
		bytes_printf(out, "[%s%s]", negated ? "^" : "", set);
	*at += 2;
	return ERR_OK;
}

static enum err translate(const char *name, const char *pattern, size_t bytes, struct bytes *out)
{
	bool in_set = false;
	size_t set_begin = 0;
	for (size_t at = 0; at < bytes;) {
		char c = pattern[at];
		if (c == '\\') {
			TRY(put_escape(name, pattern, bytes, &at, in_set, out));
			continue;
		}
		if (in_set && c == '[' && at + 1 < bytes && pattern[at + 1] != ':')
			return refuse(name, pattern, bytes, "has a set inside a set, which is not supported");
		if (in_set && c == '&' && at + 1 < bytes && pattern[at + 1] == '&')
			return refuse(name, pattern, bytes, "intersects sets, which is not supported");
		if (in_set && c == '[') {   /* [:name:] is the same in both */
			const char *end = memchr(pattern + at, ']', bytes - at);
			size_t n = end ? (size_t)(end - (pattern + at)) + 1 : bytes - at;
			bytes_put(out, pattern + at, n);
			at += n;
			continue;
		}
		if (!in_set && c == '[') {
			in_set = true;
			set_begin = at + 1 + (at + 1 < bytes && pattern[at + 1] == '^');
		} else if (in_set && c == ']' && at != set_begin) {
			in_set = false;
		}
		bytes_put(out, &c, 1);
		at++;
	}
	return out->error;
}

static enum err compile(const char *name, const char *pattern, size_t bytes, uint32_t options, struct regex *r)
{
	int fault;
	size_t where;
	PCRE2_UCHAR text[128];
	r->general = pcre2_general_context_create(allocate, release, NULL);
	pcre2_compile_context *context = r->general ? pcre2_compile_context_create(r->general) : NULL;
	if (!context)
		return no_memory();
	r->code = pcre2_compile((PCRE2_SPTR)pattern, bytes, options | PCRE2_UTF, &fault, &where, context);
	pcre2_compile_context_free(context);
	if (!r->code && (fault == PCRE2_ERROR_NOMEMORY || fault == PCRE2_ERROR_HEAP_FAILED))
		return no_memory();
	if (!r->code) {
		char room[PRINTABLE_BYTES];
		pcre2_get_error_message(fault, text, sizeof text);
		return ERR(MODEL, "%s: the expression \"%s\" is wrong at byte %zu: %s", name,
			   printable(room, pattern, bytes), where, (const char *)text);
	}
	pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);   /* without it matching is slower, and the same */
	return ERR_OK;
}

static enum err make(const char *name, const char *pattern, size_t bytes, bool literal, struct regex **out)
{
	struct regex *r;
	struct bytes text = { 0 };
	if (bytes > PATTERN_MAX_BYTES)
		return ERR(MODEL, "%s: an expression of %zu bytes is too long (at most %d)", name, bytes, PATTERN_MAX_BYTES);
	TRY(MEM_NEW(1, struct regex, &r));
	enum err e = ERR_OK;
	if (!literal)
		e = translate(name, pattern, bytes, &text);
	if (!e)
		e = literal ? compile(name, pattern, bytes, PCRE2_LITERAL, r)
			    : compile(name, bytes_text(&text), text.size,
				      PCRE2_MULTILINE | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, r);
	bytes_free(&text);
	if (e) {
		regex_destroy(r);
		return e;
	}
	*out = r;
	return ERR_OK;
}

enum err regex_compile(const char *name, const char *pattern, size_t bytes, struct regex **out)
{
	return make(name, pattern, bytes, false, out);
}

enum err regex_compile_literal(const char *name, const char *text, size_t bytes, struct regex **out)
{
	return make(name, text, bytes, true, out);
}

void regex_destroy(struct regex *r)
{
	if (!r)
		return;
	pcre2_code_free(r->code);
	pcre2_general_context_free(r->general);
	mem_free(r);
}

enum err matcher_create(struct matcher **out)
{
	struct matcher *m;
	TRY(MEM_NEW(1, struct matcher, &m));
	m->general = pcre2_general_context_create(allocate, release, NULL);
	if (m->general) {
		m->context = pcre2_match_context_create(m->general);
		m->data = pcre2_match_data_create(1, m->general);
		m->stack = pcre2_jit_stack_create(32768, JIT_STACK_BYTES, m->general);
	}
	if (!m->context || !m->data) {
		matcher_destroy(m);
		return no_memory();
	}
	pcre2_set_match_limit(m->context, MATCH_LIMIT);
	if (m->stack)
		pcre2_jit_stack_assign(m->context, NULL, m->stack);
	*out = m;
	return ERR_OK;
}

void matcher_destroy(struct matcher *m)
{
	if (!m)
		return;
	pcre2_jit_stack_free(m->stack);
	pcre2_match_data_free(m->data);
	pcre2_match_context_free(m->context);
	pcre2_general_context_free(m->general);
	mem_free(m);
}

static enum err search(const struct regex *r, struct matcher *m, const char *text, size_t bytes, struct search *s, bool *got)
{
	*got = false;
	int n = pcre2_match(r->code, (PCRE2_SPTR)text, bytes, s->from, PCRE2_NO_UTF_CHECK, m->data, m->context);
	if (n == PCRE2_ERROR_NOMATCH)
		return ERR_OK;
	if (n < 0) {
		PCRE2_UCHAR why[128];
		pcre2_get_error_message(n, why, sizeof why);
		return ERR(MODEL, "a tokenizer's expression gave up at byte %zu of a text of %zu bytes: %s", s->from, bytes,
			   (const char *)why);
	}
	const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
	if (at[0] > at[1] || at[1] > bytes || at[0] < s->from)   /* \K can do that */
		return ERR(MODEL, "a tokenizer's expression matches outside of its text");
	s->begin = at[0];
	s->end = at[1];
	*got = true;
	return ERR_OK;
}

enum err regex_next(const struct regex *r, struct matcher *m, const char *text, size_t bytes, struct search *s, bool *got)
{
	bool had_one = s->found;
	size_t last_end = s->end;
	*got = false;
	while (s->from <= bytes) {
		TRY(search(r, m, text, bytes, s, got));
		if (!*got)
			return ERR_OK;
		if (s->begin != s->end || !had_one || s->end != last_end) {
			s->from = s->end;
			s->found = true;
			return ERR_OK;
		}
		s->from = s->end + (s->end < bytes ? utf8_length((unsigned char)text[s->end]) : 1);
		*got = false;
	}
	return ERR_OK;
}
