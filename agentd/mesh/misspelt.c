/* misspelt.c - see misspelt.h. */
#include "misspelt.h"
#include "common/nearest.h"
#include "env_keys.h"
#include "traffic.h"
#include <string.h>

enum { LISTED_MAX = 16 };

static const char row_prefix[] = "annotation ";

static bool is_closed(const char *annotation)
{
	static const char *const spaces[] = {"agentd.node.mesh/", "traffic.sidecar.istio.io/"};

	for (unsigned i = 0; i < sizeof(spaces) / sizeof(*spaces); i++)
		if (!strncmp(annotation, spaces[i], strlen(spaces[i])))
			return true;
	return false;
}

/* Of the same name space. */
static void consider(struct nearest *n, const char *known)
{
	if (!strncmp(known, n->wanted, strcspn(n->wanted, "/") + 1) && !strchr(known, '*'))
		nearest_consider(n, known);
}

static void consider_traffic(void *ctx, const char *flag, const char *annotation,
    const char *variable, const char *otherwise)
{
	(void)flag, (void)variable, (void)otherwise;
	if (annotation)
		consider(ctx, annotation);
}

void misspelt_check(struct node_reader *r, const char *annotation)
{
	struct nearest n = {.wanted = annotation};
	const struct env_key *row;

	if (!is_closed(annotation) || r->misspelt == LISTED_MAX)
		return;
	for (unsigned i = 0; (row = env_key_at(i)); i++)
		if (!strncmp(row->key, row_prefix, strlen(row_prefix)))
			consider(&n, row->key + strlen(row_prefix));
	traffic_keys_each(consider_traffic, &n);
	if (!n.distance)
		return;
	r->misspelt++;
	json_array_append_new(
	    r->out->ignored, json_sprintf("annotation %s (nearest: %s)", annotation, n.name));
}
