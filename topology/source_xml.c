/* A machine from an XML file, as `lstopo FILE.xml` writes it. Files come from anywhere: their size is bounded, entities
 * are refused, hwloc reads them in a process of its own, and what it finds is checked like any other machine. */
#include "base/file.h"
#include "topology/isolate.h"
#include "topology/source_hwloc.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_XML_BYTES = 16 << 20 };

static int ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);
	return n >= m && !strcmp(text + n - m, end);
}

static int accepts(const char *spec) { return ends_with(spec, ".xml") || file_exists(spec); }

/* Says what is wrong with a text that hwloc 2 would not read, in words; hwloc itself only says no. */
static enum err check_text(const char *path, const char *text, size_t bytes)
{
	if (memchr(text, 0, bytes) || !strstr(text, "<topology"))
		return ERR(USAGE, "%s: is no hwloc XML file: it has no <topology> element", path);
	if (strstr(text, "<!ENTITY"))
		return ERR(USAGE, "%s: defines XML entities, which hwloc's files never do", path);
	const char *version = strstr(text, "<topology") + strlen("<topology"), *end = strchr(version, '>');
	version = strstr(version, "version=\"");
	long major = version && end && version < end ? strtol(version + strlen("version=\""), NULL, 10) : 1;
	if (major > 2)
		return ERR(USAGE,
			   "%s: was written by hwloc %ld, but this program's hwloc reads versions 1 and 2; write it with "
			   "lstopo --export-xml-flags v2",
			   path, major);
	return ERR_OK;
}

static enum err load(hwloc_topology_t t, const char *path, const struct bytes *text, struct machine *m)
{
	if (text->size >= INT_MAX || hwloc_topology_set_xmlbuffer(t, bytes_text(text), (int)text->size + 1) ||
	    hwloc_topology_load(t))
		return ERR(USAGE, "%s: hwloc cannot read this XML file: it is damaged or no machine", path);
	TRY(hwloc_to_machine(t, NULL, path, m));
	const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
	machine_set_text(m->source, sizeof m->source, file);
	if (!m->host[0]) {
		machine_set_text(m->host, sizeof m->host, file);
		char *dot = strrchr(m->host, '.');
		if (dot && dot > m->host)
			*dot = '\0';
	}
	return ERR_OK;
}

static enum err read_here(const char *path, struct machine *out)
{
	struct bytes text = { 0 };
	hwloc_topology_t t = NULL;
	enum err e;
	TRY_OR(free_text, e, file_read_all(path, MAX_XML_BYTES, &text));
	TRY_OR(free_text, e, check_text(path, bytes_text(&text), text.size));
	TRY_OR(free_text, e, hwloc_open_topology(&t));
	e = load(t, path, &text, out);
	hwloc_topology_destroy(t);
free_text:
	bytes_free(&text);
	return e;
}

static enum err read_xml(const char *path, struct machine *out) { return machine_read_isolated(read_here, path, out); }

const struct machine_source machine_source_xml = { "xml", "FILE.xml: a machine as lstopo writes it", accepts, read_xml };
