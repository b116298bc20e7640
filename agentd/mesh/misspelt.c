/* misspelt.c - see misspelt.h. */
#include "misspelt.h"
#include "common/nearest.h"
#include "traffic.h"
#include <stdbool.h>
#include <string.h>

static bool is_closed(const char *name)
{
	static const char *const spaces[] = {"agentd.node.mesh/", "traffic.sidecar.istio.io/"};

	for (unsigned i = 0; i < sizeof(spaces) / sizeof(*spaces); i++)
		if (!strncmp(name, spaces[i], strlen(spaces[i])))
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

const char *misspelt_annotation(const char *name, const char *(*known)(unsigned n))
{
	static const char prefix[] = "annotation ";
	struct nearest n = {.wanted = name};
	const char *key;

	if (!is_closed(name))
		return NULL;
	for (unsigned i = 0; (key = known(i)); i++)
		if (!strncmp(key, prefix, strlen(prefix)))
			consider(&n, key + strlen(prefix));
	traffic_keys_each(consider_traffic, &n);
	return n.distance ? n.name : NULL;
}
