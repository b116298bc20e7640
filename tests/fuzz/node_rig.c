/* node_rig.c - see node_rig.h. */
#include "node_rig.h"
#include "tests/unit/mesh/node_context.h"

void must(bool held)
{
	if (!held)
		abort();
}

json_t *at(json_t *v, const char *key)
{
	return json_object_get(v, key);
}

static struct node *node_of(json_t *env, bool machine, struct err *e)
{
	struct pod_spec p = {
	    .ns = "demo", .name = "web", .sa = "web", .env = env, .machine = machine};
	struct node *n;

	p.labels = json_object();
	p.annotations = json_object();
	n = node_new(&p, &node_context, e);
	json_decref(p.labels);
	json_decref(p.annotations);
	return n;
}

struct node *rig_node(json_t *env, struct err *e)
{
	return node_of(env, false, e);
}

struct node *rig_machine(json_t *env, struct err *e)
{
	return node_of(env, true, e);
}
