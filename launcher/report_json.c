/* The JSON objects of topo and inspect. */
#include "launcher/commands.h"

static json_t *core_list(const struct machine *m, int numa)
{
	json_t *list = json_array();
	for (int i = 0; i < m->n_cores; i++)
		if (m->cores[i].numa == numa)
			json_array_append_new(list, json_integer(i));
	return list;
}

static json_t *machine_json(const struct machine *m)
{
	json_t *numa = json_array(), *devices = json_array();
	for (int i = 0; i < m->n_numa; i++)
		json_array_append_new(numa, json_pack("{s:i,s:I,s:o}", "package", m->numa[i].package, "memory_bytes",
				(json_int_t)m->numa[i].memory_bytes, "cores", core_list(m, i)));
	for (int i = 0; i < m->n_devices; i++) {
		const struct machine_device *d = &m->devices[i];
		json_array_append_new(devices, json_pack("{s:s,s:s,s:s,s:i,s:i,s:I}", "name", d->name, "model", d->model, "pci",
				d->pci, "numa", d->numa, "island", d->island, "memory_bytes", (json_int_t)d->memory_bytes));
	}
	return json_pack("{s:s,s:s,s:i,s:i,s:I,s:I,s:I,s:I,s:I,s:o,s:o}", "host", m->host, "cpu", m->cpu_model, "packages",
			 m->n_packages, "cores", m->n_cores, "memory_bytes", (json_int_t)m->memory_bytes, "memory_limit_bytes",
			 (json_int_t)m->memory_limit_bytes, "l1d_bytes", (json_int_t)m->l1d_bytes, "l2_bytes",
			 (json_int_t)m->l2_bytes, "l3_bytes", (json_int_t)m->l3_bytes, "numa", numa, "devices", devices);
}

enum err report_topo_json(const struct cluster *c, json_t **out)
{
	json_t *nodes = json_array();
	for (int i = 0; i < c->n_nodes; i++)
		json_array_append_new(nodes, machine_json(&c->nodes[i]));
	*out = json_pack("{s:o}", "nodes", nodes);
	return *out ? ERR_OK : ERR(MEMORY, "no memory for the JSON report");
}

enum err report_inspect_json(const struct model *m, const struct weights *w, json_t **out)
{
	json_t *tensors = json_array();
	for (int64_t i = 0; i < weights_count(w); i++) {
		const struct tensor_info *t = weights_at(w, i);
		json_t *shape = json_array();
		for (int d = 0; d < t->n_dims; d++)
			json_array_append_new(shape, json_integer(t->dims[d]));
		json_array_append_new(tensors, json_pack("{s:s,s:s,s:o,s:I}", "name", t->name, "type", wtypes[t->type].name, "shape",
				shape, "bytes", (json_int_t)t->bytes));
	}
	*out = json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:f,s:o}", "name", m->name, "architecture",
			 m->arch->name, "format", weights_format_name(w), "layers", (json_int_t)m->n_layers, "hidden",
			 (json_int_t)m->n_embd, "heads", (json_int_t)m->n_head, "kv_heads", (json_int_t)m->n_kv_head, "head_size",
			 (json_int_t)m->n_head_dim, "ffn", (json_int_t)m->n_ffn, "experts", (json_int_t)m->n_expert, "experts_used",
			 (json_int_t)m->n_expert_used, "vocabulary", (json_int_t)m->n_vocab, "context", (json_int_t)m->n_context,
			 "tied_embeddings", m->tied_embeddings, "rope_theta", m->rope_theta, "tensors", tensors);
	return *out ? ERR_OK : ERR(MEMORY, "no memory for the JSON report");
}
