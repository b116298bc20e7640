/* bootstrap.c - Envoy's configuration, written into the pod's directory.
 *
 * directory -> written, unless the pod is held until its rules are in force; redirected -> written;
 * a connection shows the pod's addresses -> the node is rendered anew, and written again; somebody
 * removed it -> written again.
 */
#include "worker/envoy/bootstrap.h"
#include "file.h"
#include "redirect.h"
#include "rows.h"
#include "worker/istiod/istiod.h"

struct pod_bootstrap {
	struct pod_context *context;
	bool has_directory;
	struct pod_file file;
};

static char *render(void *s, size_t *size)
{
	return bootstrap_render(((const struct pod_bootstrap *)s)->context->node, size);
}

/* Who starts the pod waits for its bootstrap: a strict one shall not run before its rules. */
static void write_unless_held(struct pod_bootstrap *b)
{
	if (b->has_directory && !pod_redirect_holds(b->context->redirect))
		pod_file_write(&b->file);
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
	struct pod_bootstrap *b = s;

	if (node_set_addresses(b->context->node, ips, n))
		write_unless_held(b);
}

static void on_lost(void *s, unsigned files)
{
	if (files & 1U << LINK_FILE_BOOTSTRAP)
		pod_file_lost(&((struct pod_bootstrap *)s)->file);
}

static enum pod_progress progress(void *s, const struct err **why)
{
	return pod_file_progress(&((const struct pod_bootstrap *)s)->file, why);
}

static int start(void *s, struct err *e)
{
	struct pod_bootstrap *b = s;

	(void)e;
	b->file = (struct pod_file){.context = b->context,
	    .file = LINK_FILE_BOOTSTRAP,
	    .name = "its bootstrap",
	    .content = render,
	    .ctx = b};
	return 0;
}

static void stop(void *s)
{
	pod_file_stop(&((struct pod_bootstrap *)s)->file);
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
    .start = start,
    .stop = stop,
    .progress = progress,
    .directory = on_directory,
    .lost = on_lost,
    .redirected = on_redirected,
    .addresses = on_addresses,
    .dump = dump,
};
