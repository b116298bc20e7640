/* bootstrap.c - Envoy's configuration, written into the pod's directory.
 *
 * directory -> written, unless the pod is held until its rules are in force; redirected -> written;
 * a connection shows the pod's addresses -> the node is rendered anew, and written again.
 */
#include "worker/envoy/bootstrap.h"
#include "common/mem.h"
#include "redirect.h"
#include "rows.h"
#include "worker/istiod/istiod.h"
#include "worker/link/link.h"
#include "worker/pods/pod.h"

struct pod_bootstrap {
	struct pod_context *context;
	bool has_directory;
};

/* Who starts the pod waits for its bootstrap: a strict one shall not run before its rules. */
static void write_unless_held(const struct pod_bootstrap *b)
{
	const struct pod_context *c = b->context;
	size_t len;

	if (!b->has_directory || pod_redirect_holds(c->redirect))
		return;
	auto_free char *text = bootstrap_render(c->node, &len);
	link_write(c->shared->link, &c->pod->uid, LINK_FILE_BOOTSTRAP, text, len);
}

static void on_directory(void *s)
{
	struct pod_bootstrap *b = s;

	b->has_directory = true;
	write_unless_held(b);
}

static void on_redirected(void *s)
{
	write_unless_held(s);
}

/* Who starts again need not begin with the placeholder. */
static void on_addresses(void *s, const char *const *ips, size_t n)
{
	const struct pod_bootstrap *b = s;

	if (node_set_addresses(b->context->node, ips, n))
		write_unless_held(b);
}

static void dump(void *s, json_t *o)
{
	const struct pod_context *c = ((const struct pod_bootstrap *)s)->context;

	json_object_set_new(o, "node_id", json_string(node_id(c->node)));
	json_object_set_new(
	    o, "control_plane", json_string(istiod_options(c->plane->istiod)->name));
	json_object_update(o, (json_t *)node_leftovers(c->node));
}

const struct pod_service pod_bootstrap_service = {
    .name = "bootstrap",
    .size = sizeof(struct pod_bootstrap),
    .directory = on_directory,
    .redirected = on_redirected,
    .addresses = on_addresses,
    .dump = dump,
};
