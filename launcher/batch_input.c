#include "launcher/batch_input.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "launcher/batch_fields.h"
#include "launcher/words.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { BUFFER_BYTES = 1 << 18, MAX_ID_BYTES = 512 };

/* The custom_ids that were used, by hash; {0, 0} is a free place. */
struct id_set { XXH128_hash_t *slots; size_t capacity, n; };

struct batch_input {
	int fd, own_fd, ended;
	const char *name;
	unsigned char *buffer;
	size_t at, end;                 /* what of the buffer is not yet used */
	struct bytes line;              /* the current line, when it is not too long */
	uint64_t line_bytes;
	XXH3_state_t *state;            /* of all lines */
	uint64_t lines;
	struct batch_input_config config;
	struct id_set ids;
};

/* The stream */

enum err batch_input_open(const struct batch_input_config *c, struct batch_input **out)
{
	struct batch_input *in;
	int is_stdin = !c->path || !strcmp(c->path, "-");
	TRY(MEM_NEW(1, struct batch_input, &in));
	in->config = *c;
	in->config.max_line_bytes = c->max_line_bytes ? c->max_line_bytes : 16 << 20;
	in->name = is_stdin ? "standard input" : c->path;
	in->fd = is_stdin ? STDIN_FILENO : open(c->path, O_RDONLY | O_CLOEXEC);
	in->own_fd = !is_stdin && in->fd >= 0;
	enum err e = in->fd < 0 ? ERR(IO, "%s: cannot be opened: %s", c->path, strerror(errno)) : ERR_OK;
	if (!e)
		e = MEM_NEW(BUFFER_BYTES, unsigned char, &in->buffer);
	if (!e && !(in->state = XXH3_createState()))
		e = ERR(MEMORY, "no memory for the input's digest");
	if (e) {
		batch_input_close(in);
		return e;
	}
	XXH3_64bits_reset(in->state);
	*out = in;
	return ERR_OK;
}

void batch_input_close(struct batch_input *in)
{
	if (!in)
		return;
	if (in->own_fd)
		close(in->fd);
	XXH3_freeState(in->state);
	bytes_free(&in->line);
	mem_free(in->buffer);
	mem_free(in->ids.slots);
	mem_free(in);
}

uint64_t batch_input_lines(const struct batch_input *in) { return in->lines; }
uint64_t batch_input_digest(const struct batch_input *in) { return XXH3_64bits_digest(in->state); }

static ssize_t read_some(int fd, void *room, size_t bytes)
{
	for (;;) {
		ssize_t n = read(fd, room, bytes);
		if (n >= 0 || (errno != EINTR && errno != EAGAIN))
			return n;
		if (errno == EAGAIN)
			poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, -1);
	}
}

void batch_input_drain(int fd)
{
	char room[65536];
	while (read_some(fd, room, sizeof room) > 0)
		;
}

int batch_input_ready(const struct batch_input *in)
{
	struct pollfd p = { .fd = in->fd, .events = POLLIN };
	return in->ended || in->at < in->end || poll(&p, 1, 0) != 0;   /* a pipe's end, and what went wrong, are for the reader to see */
}

static enum err refill(struct batch_input *in)
{
	ssize_t n = read_some(in->fd, in->buffer, BUFFER_BYTES);
	if (n < 0)
		return ERR(IO, "%s: cannot be read after line %" PRIu64 ": %s", in->name, in->lines, strerror(errno));
	in->at = 0;
	in->end = (size_t)n;
	in->ended = n == 0;
	return ERR_OK;
}

/* A line without its newline into in->line, cut at the limit; *more 0: the stream has ended. */
static enum err read_line(struct batch_input *in, int *more)
{
	*more = 0;
	in->line_bytes = 0;
	bytes_clear(&in->line);
	for (int whole = 0; !whole;) {
		if (in->at == in->end && !in->ended)
			TRY(refill(in));
		if (in->ended && !*more)
			return ERR_OK;
		if (in->ended)
			break;
		const unsigned char *from = in->buffer + in->at, *newline = memchr(from, '\n', in->end - in->at);
		size_t n = newline ? (size_t)(newline - from) : in->end - in->at;
		*more = 1;
		whole = newline != NULL;
		XXH3_64bits_update(in->state, from, n);
		in->line_bytes += n;
		in->at += n + (size_t)whole;
		if (in->line_bytes <= in->config.max_line_bytes)
			bytes_put(&in->line, from, n);
		TRY(in->line.error);
	}
	XXH3_64bits_update(in->state, "\n", 1);
	in->lines++;
	return ERR_OK;
}

enum err batch_input_skim(const struct batch_input_config *c, uint64_t lines, uint64_t *read_lines, uint64_t *digest)
{
	struct batch_input *in;
	struct batch_input_config nothing_kept = *c;
	int more = 1;
	nothing_kept.max_line_bytes = 1;
	TRY(batch_input_open(&nothing_kept, &in));
	enum err e = ERR_OK;
	while (!e && more && in->lines < lines)
		e = read_line(in, &more);
	if (!e) {
		*read_lines = in->lines;
		*digest = batch_input_digest(in);
	}
	batch_input_close(in);
	return e;
}

/* custom_ids */

static void put_id(struct id_set *s, XXH128_hash_t id)
{
	size_t at = (size_t)id.low64 & (s->capacity - 1);
	while (s->slots[at].low64 || s->slots[at].high64)
		at = (at + 1) & (s->capacity - 1);
	s->slots[at] = id;
}

static enum err grow_ids(struct id_set *s)
{
	struct id_set bigger = { .capacity = s->capacity ? 2 * s->capacity : 1024, .n = s->n };
	TRY(MEM_NEW(bigger.capacity, XXH128_hash_t, &bigger.slots));
	for (size_t i = 0; i < s->capacity; i++)
		if (s->slots[i].low64 || s->slots[i].high64)
			put_id(&bigger, s->slots[i]);
	mem_free(s->slots);
	*s = bigger;
	return ERR_OK;
}

static enum err use_id(struct id_set *s, const char *id, size_t bytes, int *again)
{
	XXH128_hash_t hash = XXH3_128bits(id, bytes);
	if (!hash.low64 && !hash.high64)
		hash.low64 = 1;
	if (s->n + 1 > s->capacity / 4 * 3)
		TRY(grow_ids(s));
	for (size_t at = (size_t)hash.low64 & (s->capacity - 1); s->slots[at].low64 || s->slots[at].high64;
	     at = (at + 1) & (s->capacity - 1))
		if (XXH128_isEqual(s->slots[at], hash)) {
			*again = 1;
			return ERR_OK;
		}
	put_id(s, hash);
	s->n++;
	*again = 0;
	return ERR_OK;
}

/* A line. What is wrong with it is raised as an error and then kept in the request; r->fault_code is set before. */

static size_t blanks(const struct bytes *line)
{
	return strspn(bytes_text(line), " \t\r");
}

static enum err check_bytes(const struct batch_input *in, struct batch_request *r, const char *where)
{
	const struct bytes *line = &in->line;
	const char *text = bytes_text(line);
	const char *nul = line->size ? memchr(text, 0, line->size) : NULL;
	if (in->line_bytes > in->config.max_line_bytes) {
		r->fault_code = "line_too_long";
		return ERR(WORK, "%s: has %" PRIu64 " bytes, at most %zu are allowed", where, in->line_bytes, in->config.max_line_bytes);
	}
	if (!nul && blanks(line) == line->size) {
		r->fault_code = "empty_line";
		return ERR(WORK, "%s: is empty", where);
	}
	if (line->size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) {
		r->fault_code = "byte_order_mark";
		return ERR(WORK, "%s: begins with a byte order mark (EF BB BF); save the file as UTF-8 without one", where);
	}
	if (nul) {
		r->fault_code = "binary";
		return ERR(WORK, "%s: holds a 0 byte at column %zu; the input must be text, one JSON object a line", where,
			   (size_t)(nul - text) + 1);
	}
	if (text[line->size - 1] == '\r') {
		r->fault_code = "carriage_return";
		return ERR(WORK, "%s: ends in CR LF; lines must end in LF alone, as dos2unix makes them", where);
	}
	return ERR_OK;
}

/* jansson has refused the line: where bytes are the reason, say so. */
static enum err not_json(const struct bytes *line, struct batch_request *r, const char *where, const json_error_t *fault)
{
	const char *text = bytes_text(line);
	for (size_t i = 0, n; i < line->size; i += n) {
		n = text_character(text + i, line->size - i);
		if (n && ((unsigned char)text[i] >= ' ' || text[i] == '\t' || text[i] == '\r'))
			continue;
		r->fault_code = n ? "binary" : "not_utf8";
		return n ? ERR(WORK, "%s: holds the control character 0x%02x at column %zu; inside strings JSON wants \\u%04x", where,
			       (unsigned char)text[i], i + 1, (unsigned char)text[i])
			 : ERR(WORK, "%s: the byte 0x%02x at column %zu is not UTF-8", where, (unsigned char)text[i], i + 1);
	}
	r->fault_code = "invalid_json";
	return ERR(WORK, "%s: is not valid JSON: %.160s (column %d)", where, fault->text, fault->column);
}

static enum err parse_json(const struct batch_input *in, struct batch_request *r, const char *where)
{
	json_error_t fault;
	TRY(check_bytes(in, r, where));
	r->root = json_loadb(bytes_text(&in->line), in->line.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
	if (!r->root)
		return not_json(&in->line, r, where, &fault);
	r->fault_code = "not_an_object";
	if (!json_is_object(r->root))
		return ERR(WORK, "%s: must be a JSON object, found %s", where, json_type_name(r->root));
	return ERR_OK;
}

static enum err take_id(struct batch_input *in, struct batch_request *r, const char *where, int needed)
{
	json_t *id = json_object_get(r->root, "custom_id");
	int again = 0;
	if (!needed && (!id || json_is_null(id))) {
		snprintf(r->made_id, sizeof r->made_id, "line-%" PRIu64, r->line + 1);
		r->custom_id = r->made_id;
		return ERR_OK;
	}
	r->fault_code = id ? "invalid_custom_id" : "missing_custom_id";
	if (!id)
		return ERR(WORK, "%s: has no custom_id", where);
	size_t bytes = json_string_length(id);
	if (!json_is_string(id) || !bytes || bytes > MAX_ID_BYTES || strlen(json_string_value(id)) != bytes)
		return ERR(WORK, "%s: \"custom_id\" must be a string of 1 to %d bytes, found %s", where, MAX_ID_BYTES,
			   !json_is_string(id) ? json_type_name(id) : !bytes ? "an empty one" : bytes > MAX_ID_BYTES ? "a longer one"
			   : "a 0 byte in it");
	r->custom_id = json_string_value(id);
	TRY(use_id(&in->ids, r->custom_id, bytes, &again));
	r->fault_code = "duplicate_custom_id";
	return again ? ERR(WORK, "%s: the custom_id \"%s\" was used by an earlier line", where, SHOWN(r->custom_id)) : ERR_OK;
}

static enum err choose_kind(struct batch_request *r, const char *where, json_t **body)
{
	json_t *url = json_object_get(r->root, "url"), *method = json_object_get(r->root, "method");
	const char *path = json_string_value(url), *word = json_string_value(method);
	r->fault_code = "invalid_url";
	if (!path)
		return ERR(WORK, "%s: \"url\" must be a string, found %s", where, json_type_name(url));
	r->kind = !strcmp(path, "/v1/chat/completions") ? BATCH_CHAT : !strcmp(path, "/v1/completions") ? BATCH_COMPLETION : 0;
	if (!r->kind)
		return ERR(WORK, "%s: the url \"%s\" is not known; there are /v1/chat/completions and /v1/completions", where, SHOWN(path));
	r->fault_code = "invalid_method";
	if (!word || strcmp(word, "POST"))
		return ERR(WORK, "%s: \"method\" must be \"POST\", found %s%s%s", where, word ? "\"" : "", word ? SHOWN(word) : json_type_name(method),
			   word ? "\"" : "");
	*body = json_object_get(r->root, "body");
	r->fault_code = "invalid_body";
	return json_is_object(*body) ? ERR_OK : ERR(WORK, "%s: \"body\" must be an object, found %s", where, json_type_name(*body));
}

static enum err parse(struct batch_input *in, struct batch_request *r, const char *where)
{
	TRY(parse_json(in, r, where));
	json_t *body = r->root;
	int enveloped = json_object_get(body, "url") || json_object_get(body, "body") || json_object_get(body, "method");
	int plain = !enveloped && json_object_get(body, "prompt");
	r->kind = plain ? BATCH_PLAIN : 0;
	TRY(take_id(in, r, where, !plain));
	r->fault_code = "invalid_request";
	if (!plain && !enveloped)
		return ERR(WORK, "%s: must have custom_id, method, url and body, or a prompt", where);
	if (!plain)
		TRY(choose_kind(r, where, &body));
	r->fault_code = "invalid_request";
	TRY(batch_fields_read(r, where, body));
	const char *choice = json_string_value(json_object_get(body, "tool_choice"));
	if (choice && !strcmp(choice, "none"))
		r->tools = NULL;
	r->fault_code = NULL;
	return ERR_OK;
}

enum err batch_input_next(struct batch_input *in, struct batch_request *r, int *more)
{
	char where[40];
	TRY(read_line(in, more));
	if (!*more)
		return ERR_OK;
	memset(r, 0, sizeof *r);
	r->line = in->lines - 1;
	r->sampling = in->config.defaults;
	r->n_vocab = in->config.n_vocab;
	snprintf(where, sizeof where, "line %" PRIu64, in->lines);
	enum err e = parse(in, r, where);
	if (e == ERR_MEMORY) {
		batch_request_free(r);
		return e;
	}
	if (e) {
		snprintf(r->fault, sizeof r->fault, "%.*s", (int)sizeof r->fault - 1, err_sentence());
		err_clear();
	}
	return ERR_OK;
}

void batch_request_free(struct batch_request *r)
{
	mem_free(r->prompt_ids);
	mem_free(r->stops);
	mem_free(r->stop_ids);
	mem_free(r->biases);
	json_decref(r->root);
	memset(r, 0, sizeof *r);
}
