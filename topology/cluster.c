/* Clusters: nodes in order, from terms "N x SPEC" joined by " + ", or from a cluster file whose lines are such terms. A term
 * may name another cluster file, a few levels deep. Hosts that would be equal get numbers, so that every node has a name
 * of its own. */
#include "topology/machine.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 4, MAX_FILE_BYTES = 1 << 20, PATH_BYTES = 1024 };

/* Where a term stands: the directory that paths start at, "" for the command line's. */
struct place { const char *directory; int depth; };

static enum err add_terms(struct cluster *c, char *text, long repeat, const struct place *at);

static char *trim(char *text)
{
	text += strspn(text, " \t\r");
	for (size_t n = strlen(text); n && strchr(" \t\r", text[n - 1]); n--)
		text[n - 1] = '\0';
	return text;
}

/* Appends the nodes c->nodes[first..] so often that they are there `repeat` times. */
static enum err repeat_nodes(struct cluster *c, int first, long repeat)
{
	int n = c->n_nodes - first;
	if (repeat > CLUSTER_MAX_NODES || n > CLUSTER_MAX_NODES || first + (long long)n * repeat > CLUSTER_MAX_NODES)
		return ERR(USAGE, "a cluster of more than %d nodes", CLUSTER_MAX_NODES);
	TRY(mem_grow(&c->nodes, (size_t)first + (size_t)n * (size_t)repeat, sizeof *c->nodes, "nodes"));
	for (long k = 1; k < repeat; k++)
		for (int i = 0; i < n; i++) {
			TRY(machine_copy(&c->nodes[first + i], &c->nodes[c->n_nodes]));
			c->n_nodes++;
		}
	return ERR_OK;
}

static enum err add_machine(struct cluster *c, const char *spec)
{
	struct machine m;
	TRY(machine_read(spec, &m));
	enum err e = mem_grow(&c->nodes, (size_t)c->n_nodes + 1, sizeof *c->nodes, "nodes");
	if (e) {
		machine_free(&m);
		return e;
	}
	c->nodes[c->n_nodes++] = m;
	return ERR_OK;
}

/* A cluster file is any text but XML. */
static int is_xml(const char *text) { return text[strspn(text, " \t\r\n\xef\xbb\xbf")] == '<'; }

static enum err add_lines(struct cluster *c, const char *path, char *text, const struct place *at)
{
	int line = 0, before = c->n_nodes;
	for (char *next; text; text = next) {
		next = strchr(text, '\n');
		if (next)
			*next++ = '\0';
		line++;
		text[strcspn(text, "#")] = '\0';
		char *term = trim(text);
		if (!*term)
			continue;
		enum err e = add_terms(c, term, 1, at);
		if (e)
			return err_context(e, "%s:%d", path, line);
	}
	if (c->n_nodes == before)
		return ERR(USAGE, "%s: describes no machine: every line is empty or a comment", path);
	return ERR_OK;
}

static enum err add_file(struct cluster *c, const char *path, const struct place *at)
{
	struct bytes text = { 0 };
	char directory[PATH_BYTES];
	enum err e = file_read_all(path, MAX_FILE_BYTES, &text);
	if (e) {
		bytes_free(&text);
		if (file_is_directory(path))
			return ERR(USAGE, "%s: is a directory, but must be a file", path);
		return e == ERR_IO ? add_machine(c, path) : e;   /* what is too large for text may be XML */
	}
	const char *slash = strrchr(path, '/');
	snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - path + 1) : 0, path);
	struct place inside = { directory, at->depth + 1 };
	if (is_xml(bytes_text(&text)))
		e = add_machine(c, path);
	else if (memchr(bytes_text(&text), 0, text.size))
		e = ERR(USAGE, "%s: is neither text nor XML", path);
	else if (at->depth == MAX_DEPTH)
		e = ERR(USAGE, "%s: cluster files name each other more than %d deep", path, MAX_DEPTH);
	else
		e = add_lines(c, path, (char *)text.data, &inside);
	bytes_free(&text);
	return e;
}

/* "16 x SPEC" -> 16 and SPEC; anything else is once. */
static enum err split_count(char **term, long *count)
{
	char *end;
	long n = strtol(*term, &end, 10);
	*count = 1;
	if (end == *term || strncmp(end + strspn(end, " \t"), "x ", 2))
		return ERR_OK;
	if (n < 1 || n > CLUSTER_MAX_NODES)
		return ERR(USAGE, "\"%s\": the number of nodes must be 1 to %d", *term, CLUSTER_MAX_NODES);
	*count = n;
	*term = trim(end + strspn(end, " \t") + 1);
	return ERR_OK;
}

static enum err add_term(struct cluster *c, char *term, const struct place *at)
{
	char path[PATH_BYTES];
	int first = c->n_nodes;
	long count;
	TRY(split_count(&term, &count));
	int fits = snprintf(path, sizeof path, "%s%s", term[0] == '/' ? "" : at->directory, term) < (int)sizeof path;
	if (*term && fits && (file_exists(path) || file_is_directory(path)))
		TRY(add_file(c, path, at));
	else
		TRY(add_machine(c, term));
	return repeat_nodes(c, first, count);
}

static enum err add_terms(struct cluster *c, char *text, long repeat, const struct place *at)
{
	int first = c->n_nodes;
	for (char *next; text; text = next) {
		next = strstr(text, " + ");
		if (next) {
			*next = '\0';
			next += 3;
		}
		char *term = trim(text);
		if (!*term && (next || c->n_nodes > first))
			return ERR(USAGE, "nothing stands beside a \"+\"");
		TRY(add_term(c, term, at));
	}
	return repeat_nodes(c, first, repeat);
}

static int by_host(const void *a, const void *b)
{
	const struct machine *const *x = a, *const *y = b;
	int order = strcmp((*x)->host, (*y)->host);
	return order ? order : (*x > *y) - (*x < *y);
}

/* Gives nodes of equal host the endings -0, -1, ... in their order. */
static enum err number_hosts(struct cluster *c)
{
	struct machine **sorted;
	TRY(MEM_NEW((size_t)c->n_nodes, struct machine *, &sorted));
	for (int i = 0; i < c->n_nodes; i++)
		sorted[i] = &c->nodes[i];
	qsort(sorted, (size_t)c->n_nodes, sizeof *sorted, by_host);
	for (int i = 0, end; i < c->n_nodes; i = end) {
		char host[MACHINE_NAME_BYTES], ending[16];
		strcpy(host, sorted[i]->host);
		host[MACHINE_NAME_BYTES - sizeof ending] = '\0';   /* room for the ending */
		for (end = i + 1; end < c->n_nodes && !strcmp(sorted[end]->host, sorted[i]->host); end++)
			;
		for (int k = end - 1; end - i > 1 && k >= i; k--) {
			snprintf(ending, sizeof ending, "-%d", k - i);
			strcpy(sorted[k]->host, host);
			strcat(sorted[k]->host, ending);
		}
	}
	mem_free(sorted);
	return ERR_OK;
}

enum err cluster_read(const char *spec, struct cluster *out)
{
	struct cluster c = { 0 };
	const struct place here = { "", 0 };
	char *copy;
	TRY(mem_copy_string(spec, &copy));
	enum err e = add_terms(&c, copy, 1, &here);
	mem_free(copy);
	if (!e)
		e = number_hosts(&c);
	if (e) {
		cluster_free(&c);
		return e;
	}
	*out = c;
	return ERR_OK;
}

void cluster_free(struct cluster *c)
{
	if (!c)
		return;
	for (int i = 0; i < c->n_nodes; i++)
		machine_free(&c->nodes[i]);
	mem_free(c->nodes);
	*c = (struct cluster){ 0 };
}
