#include "launcher/journal_records.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* 0x89 and 0x1a are in no JSON text, so a result never looks like a group. */
static const unsigned char file_magic[8] = { 0x89, 'S', 'R', 'J', '1', '\r', '\n', 0x1a };
static const unsigned char group_magic[8] = { 0x89, 'S', 'R', 'G', '1', '\r', '\n', 0x1a };

enum { FILE_HEADER_BYTES = 44, MAX_IDENTITY_BYTES = 1 << 20 };

static void put_hash(struct bytes *b)
{
	bytes_put_u64(b, XXH3_64bits(bytes_text(b), b->size));
}

static enum err put_header(const struct records_header *h, struct bytes *out)
{
	bytes_put(out, file_magic, sizeof file_magic);
	bytes_put_u64(out, h->epoch);
	bytes_put_u64(out, h->previous);
	bytes_put_u64(out, h->cut);
	bytes_put_u64(out, (uint64_t)h->created);
	bytes_put_u32(out, (uint32_t)h->identity.size);
	bytes_put(out, h->identity.data, h->identity.size);
	put_hash(out);
	return out->error;
}

enum err records_create(const char *directory, const struct journal_io *io, const struct records_header *h,
			struct records_writer *out)
{
	struct records_writer w = { .fd = -1, .io = io, .epoch = h->epoch };
	struct bytes header = { 0 };
	TRY(journal_path(directory, "records", h->epoch, w.path, sizeof w.path));
	if (h->identity.size > MAX_IDENTITY_BYTES)
		return ERR(BUG, "%s: the identity has %zu bytes", w.path, h->identity.size);
	w.fd = open(w.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (w.fd < 0)
		return ERR(IO, "%s: cannot be made: %s", w.path, strerror(errno));
	enum err e = put_header(h, &header);
	if (!e)
		e = journal_write(io, w.fd, w.path, header.data, header.size, 0);
	if (!e)
		e = journal_sync(io, w.fd, w.path);
	if (!e)
		e = journal_sync_directory(directory);
	w.end = header.size;
	bytes_free(&header);
	if (e)
		records_close(&w);
	else
		*out = w;
	return e;
}

enum err records_put(struct records_writer *w, uint64_t line, const void *data, size_t bytes, uint64_t *offset)
{
	if (bytes > UINT32_MAX)
		return ERR(WORK, "%s: the result of line %" PRIu64 " has %zu bytes, more than 4 GiB", w->path, (line & ~RECORDS_FAULT) + 1, bytes);
	if (!w->n) {
		static const unsigned char room[RECORDS_GROUP_HEADER_BYTES];
		bytes_clear(&w->group);
		bytes_put(&w->group, room, sizeof room);
	}
	bytes_put_u64(&w->group, line);
	bytes_put_u32(&w->group, (uint32_t)bytes);
	bytes_put_u32(&w->group, (uint32_t)XXH3_64bits(data, bytes));
	*offset = w->end + w->group.size;
	bytes_put(&w->group, data, bytes);
	w->n++;
	return w->group.error;
}

static enum err fill_group_header(struct records_writer *w, const struct records_input *input)
{
	struct bytes head = { 0 };
	const unsigned char *payload = w->group.data + RECORDS_GROUP_HEADER_BYTES;
	size_t bytes = w->group.size - RECORDS_GROUP_HEADER_BYTES;
	bytes_put(&head, group_magic, sizeof group_magic);
	bytes_put_u64(&head, w->epoch);
	bytes_put_u64(&head, w->index);
	bytes_put_u64(&head, w->n);
	bytes_put_u64(&head, bytes);
	bytes_put_u64(&head, input->lines);
	bytes_put_u64(&head, input->digest);
	bytes_put_u64(&head, XXH3_64bits(payload, bytes));
	put_hash(&head);
	if (!head.error)
		memcpy(w->group.data, head.data, RECORDS_GROUP_HEADER_BYTES);
	enum err e = head.error;
	bytes_free(&head);
	return e;
}

enum err records_commit(struct records_writer *w, const struct records_input *input)
{
	if (w->group.error)
		return w->group.error;
	TRY(fill_group_header(w, input));
	enum err e = journal_write(w->io, w->fd, w->path, w->group.data, w->group.size, (int64_t)w->end);
	if (!e)
		e = journal_sync(w->io, w->fd, w->path);
	if (e) {
		int cut = ftruncate(w->fd, (off_t)w->end);   /* if that fails too, the next owner's reading ends there */
		(void)cut;
		return e;
	}
	w->end += w->group.size;
	w->index++;
	w->n = 0;
	return ERR_OK;
}

void records_close(struct records_writer *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
	bytes_free(&w->group);
}

/* What a group's header says, when it is whole. */
struct group { uint64_t index, n, bytes, payload_hash; struct records_input input; };

static int parse_group(const unsigned char *head, uint64_t epoch, struct group *g)
{
	struct reader r;
	reader_init(&r, "group", head, RECORDS_GROUP_HEADER_BYTES);
	const void *magic = reader_get(&r, sizeof group_magic);
	uint64_t of_epoch = reader_u64(&r);
	g->index = reader_u64(&r);
	g->n = reader_u64(&r);
	g->bytes = reader_u64(&r);
	g->input.lines = reader_u64(&r);
	g->input.digest = reader_u64(&r);
	g->payload_hash = reader_u64(&r);
	uint64_t hash = XXH3_64bits(head, r.at);
	return !memcmp(magic, group_magic, sizeof group_magic) && of_epoch == epoch && reader_u64(&r) == hash;
}

struct scan {
	int fd;
	char path[JOURNAL_PATH_BYTES];
	uint64_t epoch, size;
};

static enum err scan_open(const char *directory, uint64_t epoch, struct scan *s)
{
	struct stat st;
	*s = (struct scan){ .fd = -1, .epoch = epoch };
	TRY(journal_path(directory, "records", epoch, s->path, sizeof s->path));
	s->fd = open(s->path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0)
		return ERR(IO, "%s: cannot be opened, though results may be in it: %s", s->path, strerror(errno));
	if (fstat(s->fd, &st)) {
		close(s->fd);
		return ERR(IO, "%s: cannot be looked at: %s", s->path, strerror(errno));
	}
	s->size = (uint64_t)st.st_size;
	return ERR_OK;
}

/* Is there a whole group's header at or behind `at`? */
static enum err find_group(const struct scan *s, uint64_t at, int *found)
{
	unsigned char window[65536];
	struct group g;
	size_t n;
	*found = 0;
	while (!*found) {
		TRY(journal_read(s->fd, s->path, at, window, sizeof window, &n));
		if (n < RECORDS_GROUP_HEADER_BYTES)
			return ERR_OK;
		size_t last = n - RECORDS_GROUP_HEADER_BYTES;
		for (size_t i = 0; i <= last && !*found; i++)
			*found = window[i] == group_magic[0] && parse_group(window + i, s->epoch, &g);
		at += last + 1;
	}
	return ERR_OK;
}

static enum err damaged(const struct scan *s, uint64_t at, const char *what)
{
	return ERR(IO, "%s: damaged at byte %" PRIu64 ": %s, so finished results are missing; bring the file back, or remove the journal's folder and begin again",
		   s->path, at, what);
}

/* *size: bytes of the header, 0 when it is not whole. */
static enum err read_header(const struct scan *s, struct records_header *h, uint64_t *size)
{
	unsigned char fixed[FILE_HEADER_BYTES];
	struct bytes all = { 0 };
	size_t n;
	*size = 0;
	TRY(journal_read(s->fd, s->path, 0, fixed, sizeof fixed, &n));
	if (n < sizeof fixed || memcmp(fixed, file_magic, sizeof file_magic))
		return ERR_OK;
	struct reader r;
	reader_init(&r, s->path, fixed + sizeof file_magic, sizeof fixed - sizeof file_magic);
	h->epoch = reader_u64(&r);
	h->previous = reader_u64(&r);
	h->cut = reader_u64(&r);
	h->created = (int64_t)reader_u64(&r);
	uint64_t rest = reader_u32(&r);
	if (rest > MAX_IDENTITY_BYTES || s->size < sizeof fixed + rest + 8)
		return ERR_OK;
	bytes_put(&all, fixed, sizeof fixed);
	for (uint64_t i = 0; i < rest + 8; i++)   /* room for what is read next */
		bytes_put(&all, "", 1);
	enum err e = all.error;
	if (!e)
		e = journal_read(s->fd, s->path, sizeof fixed, all.data + sizeof fixed, rest + 8, &n);
	if (!e && n == rest + 8) {
		struct reader tail;
		reader_init(&tail, s->path, all.data + all.size - 8, 8);
		if (reader_u64(&tail) == XXH3_64bits(all.data, all.size - 8) && h->epoch == s->epoch && h->previous < h->epoch) {
			bytes_clear(&h->identity);
			bytes_put(&h->identity, all.data + sizeof fixed, rest);
			e = h->identity.error;
			*size = all.size;
		}
	}
	bytes_free(&all);
	return e;
}

/* Of one file of the chain; a header in pieces with a group behind it is damage, without one it holds nothing. */
static enum err file_header(const char *directory, uint64_t epoch, struct records_header *h, uint64_t *size)
{
	struct scan s;
	int found = 0;
	TRY(scan_open(directory, epoch, &s));
	enum err e = read_header(&s, h, size);
	if (!e && !*size)
		e = find_group(&s, 0, &found);
	if (!e && found)
		e = damaged(&s, 0, "its header is not whole, but results follow it");
	close(s.fd);
	return e;
}

static enum err newest_below(const char *directory, uint64_t below, uint64_t *epoch)
{
	DIR *dir = opendir(directory);
	if (!dir)
		return ERR(IO, "%s: cannot be read: %s", directory, strerror(errno));
	*epoch = 0;
	for (struct dirent *entry; (entry = readdir(dir));) {
		uint64_t n = journal_name_epoch(entry->d_name, "records");
		if (n < below && n > *epoch)
			*epoch = n;
	}
	closedir(dir);
	return ERR_OK;
}

static enum err add_file(struct records_chain *c, uint64_t epoch, uint64_t begin, uint64_t cut)
{
	TRY(mem_grow(&c->files, (size_t)c->n + 1, sizeof *c->files, "journal files"));
	c->files[c->n].epoch = epoch;
	c->files[c->n].begin = begin;
	c->files[c->n++].cut = cut;
	return ERR_OK;
}

static void reverse(struct records_chain *c)
{
	for (int64_t i = 0, k = c->n - 1; i < k; i++, k--) {
		__typeof__(c->files[0]) file = c->files[i];
		c->files[i] = c->files[k];
		c->files[k] = file;
	}
}

static enum err walk(const char *directory, uint64_t below, struct records_chain *c)
{
	struct records_header h = { 0 };
	uint64_t size = 0, epoch = below, cut = UINT64_MAX;
	enum err e = ERR_OK;
	while (!size) {
		TRY(newest_below(directory, epoch, &epoch));
		if (!epoch)
			return ERR_OK;
		TRY(file_header(directory, epoch, &c->newest, &size));
	}
	c->newest.epoch = epoch;
	h = c->newest;
	h.identity = (struct bytes){ 0 };
	while (!e) {
		e = add_file(c, epoch, size, cut);
		if (e || !h.previous)
			break;
		epoch = h.previous;
		cut = h.cut;
		e = file_header(directory, epoch, &h, &size);
		if (!e && !size)
			e = ERR(IO, "%s/records-%06" PRIu64 ": damaged at byte 0: its header is not whole, though a later file builds on it; bring the file back, or remove the journal's folder and begin again",
				directory, epoch);
	}
	bytes_free(&h.identity);
	return e;
}

enum err records_chain_open(const char *directory, uint64_t below, struct records_chain *out)
{
	struct records_chain c = { 0 };
	enum err e = walk(directory, below, &c);
	if (e) {
		records_chain_free(&c);
		return e;
	}
	if (!c.n)
		c.newest.epoch = 0;
	reverse(&c);
	*out = c;
	return ERR_OK;
}

void records_chain_free(struct records_chain *c)
{
	bytes_free(&c->newest.identity);
	mem_free(c->files);
	*c = (struct records_chain){ 0 };
}

static enum err visit_group(const struct scan *s, uint64_t at, const struct bytes *payload, uint64_t n, records_visit *visit,
			    void *context)
{
	struct reader r;
	reader_init(&r, s->path, payload->data, payload->size);
	for (uint64_t i = 0; i < n; i++) {
		struct records_place place = { .epoch = s->epoch };
		uint64_t line = reader_u64(&r);
		place.bytes = reader_u32(&r);
		place.hash = reader_u32(&r);
		place.offset = at + r.at;
		const void *data = reader_get(&r, place.bytes);
		if (r.error)
			return damaged(s, at, "a record is longer than its group");
		TRY(visit(context, line, &place, data));
	}
	return ERR_OK;
}

/* Reads the group at `at` into payload; *size: of it all, 0 when it is not whole. */
static enum err read_group(const struct scan *s, uint64_t at, uint64_t index, uint64_t limit, struct group *g,
			   struct bytes *payload, uint64_t *size)
{
	unsigned char head[RECORDS_GROUP_HEADER_BYTES], part[65536];
	size_t n;
	*size = 0;
	TRY(journal_read(s->fd, s->path, at, head, sizeof head, &n));
	if (n < sizeof head || !parse_group(head, s->epoch, g) || g->index != index || g->bytes > limit - at - sizeof head)
		return ERR_OK;
	bytes_clear(payload);
	for (uint64_t done = 0; done < g->bytes; done += n) {
		uint64_t want = g->bytes - done < sizeof part ? g->bytes - done : sizeof part;
		TRY(journal_read(s->fd, s->path, at + sizeof head + done, part, want, &n));
		if (!n)
			return ERR_OK;
		bytes_put(payload, part, n);
	}
	TRY(payload->error);
	if (XXH3_64bits(bytes_text(payload), payload->size) == g->payload_hash)
		*size = sizeof head + g->bytes;
	return ERR_OK;
}

/* *end: where the groups end: at the cut, or where the last file is no longer whole. */
static enum err read_file(const struct scan *s, uint64_t begin, uint64_t cut, records_visit *visit, void *context,
			  uint64_t *end, struct records_input *input)
{
	struct bytes payload = { 0 };
	struct group g;
	uint64_t at = begin, size = 1, limit = cut < s->size ? cut : s->size;
	enum err e = ERR_OK;
	for (uint64_t index = 0; !e && size && at < limit; index++) {
		if (limit - at < RECORDS_GROUP_HEADER_BYTES)
			break;
		e = read_group(s, at, index, limit, &g, &payload, &size);
		if (!e && size) {
			*input = g.input;
			e = visit_group(s, at + RECORDS_GROUP_HEADER_BYTES, &payload, g.n, visit, context);
			at += size;
		}
	}
	bytes_free(&payload);
	*end = at;
	return e;
}

enum err records_chain_read(const char *directory, const struct records_chain *c, records_visit *visit, void *context,
			    uint64_t *end, struct records_input *input)
{
	*end = 0;
	for (int64_t i = 0; i < c->n; i++) {
		struct scan s;
		int found = 0;
		TRY(scan_open(directory, c->files[i].epoch, &s));
		enum err e = read_file(&s, c->files[i].begin, c->files[i].cut, visit, context, end, input);
		int last = c->files[i].cut == UINT64_MAX;
		if (!e && !last && *end != c->files[i].cut)
			e = damaged(&s, *end, "a group of results is not whole, though a later file builds on it");
		if (!e && last)
			e = find_group(&s, *end + 1, &found);
		if (!e && found)
			e = damaged(&s, *end, "a group of results is not whole, but others follow it");
		if (!e && last)
			e = journal_sync(NULL, s.fd, s.path);   /* its writer may have died before its own fsync */
		close(s.fd);
		TRY(e);
	}
	return ERR_OK;
}

enum err records_read(struct records_reader *r, const char *directory, const struct records_place *place, struct bytes *out)
{
	size_t n;
	if (r->epoch != place->epoch || r->fd < 0) {
		records_reader_close(r);
		TRY(journal_path(directory, "records", place->epoch, r->path, sizeof r->path));
		r->fd = open(r->path, O_RDONLY | O_CLOEXEC);
		if (r->fd < 0)
			return ERR(IO, "%s: cannot be opened: %s", r->path, strerror(errno));
		r->epoch = place->epoch;
	}
	bytes_clear(out);
	for (uint32_t done = 0; done < place->bytes; done += (uint32_t)n) {
		unsigned char part[65536];
		size_t want = place->bytes - done < sizeof part ? place->bytes - done : sizeof part;
		TRY(journal_read(r->fd, r->path, place->offset + done, part, want, &n));
		if (!n)
			break;
		bytes_put(out, part, n);
	}
	TRY(out->error);
	if (out->size != place->bytes || (uint32_t)XXH3_64bits(bytes_text(out), out->size) != place->hash)
		return ERR(IO, "%s: the result at byte %" PRIu64 " is no longer what was written", r->path, place->offset);
	return ERR_OK;
}

void records_reader_close(struct records_reader *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	r->epoch = 0;
}
