/* pages.c - the table of pages, on the admin socket; and metrics, on a port too, if there is one.
 *
 * A page is put together when it is asked for.  Those of redirect.c answer later.
 */
#include "pages.h"
#include "common/mem.h"
#include "pages_internal.h"
#include "redirect.h"
#include "worker/admin/admin.h"
#include "worker/admin/metrics_port.h"
#include "worker/kubelet/kubelet.h"
#include "worker/link/calls.h"
#include "worker/link/heartbeat.h"
#include "worker/link/link.h"
#include "worker/pod/shared.h"
#include "worker/pods/pod.h"

/* Whom a page shows: the whole page is its own, or it has what some services of each pod say. */
static const struct row {
	const char *path;
	json_t *(*whole)(const struct pages_of *of);
	const char *services; /* pod_service.page */
	bool by_label;        /* its pods have always been named by their label alone */
} rows[] = {
    /* the node */
    {"/status", .whole = pages_status},
    {"/version", .whole = pages_version},
    /* its control planes */
    {"/certs", .whole = pages_certs},
    /* every pod */
    {"/pods", .whole = pages_pods},
    {"/xds", .services = "xds", .by_label = true},
    {"/redirect", .services = "redirect"},
    {"/dns", .services = "dns"},
};
enum { ROWS = sizeof(rows) / sizeof(*rows) };

struct pages {
	struct pages_of of;
	struct admin *admin; /* NULL: nobody can look */
	struct pages_redirect *redirect;
	struct metrics_port *port; /* NULL: nobody asked for one */
	struct page {
		const struct pages *pages;
		const struct row *row;
	} page[ROWS];
};

static void serve(void *ctx, struct http_request *req)
{
	const struct page *p = ctx;
	const struct pages_of *of = &p->pages->of;
	const struct row *row = p->row;

	admin_reply_json(req,
	    row->whole ? row->whole(of)
		       : pages_services(of, row->services, row->by_label, http_query(req, "name")));
}

static void on_before_metrics(void *ctx)
{
	const struct pages *a = ctx;

	pages_measure(&a->of);
}

/* The answer itself shows that the loop turns. */
static const char *on_health_asked(void *ctx)
{
	const struct pages *a = ctx;

	const char *why_not = heartbeat_why_not(a->of.broker);

	if (why_not)
		return why_not;
	return pod_registry_is_settled(a->of.pods)
		   ? kubelet_why_not(a->of.kubelet)
		   : "starting: some previous pods are not served yet";
}

static void serve_rows(struct pages *a)
{
	for (size_t i = 0; i < ROWS; i++) {
		a->page[i] = (struct page){a, &rows[i]};
		admin_serve(a->admin, rows[i].path, serve, &a->page[i]);
	}
}

static void on_levels(void *ctx)
{
	link_log(((struct pages *)ctx)->of.shared->link);
}

struct pages *pages_new(const struct pages_of *of)
{
	struct pages *a = mem_zalloc(sizeof(*a));
	const struct agent_shared *s = of->shared;
	int fd = link_take_listener(s->link, LINK_NODE_METRICS);

	a->of = *of;
	if (fd >= 0)
		a->port = metrics_port_new(
		    s->loop, fd, &(struct metrics_port_rig){on_before_metrics, on_health_asked, a});
	fd = link_take_listener(s->link, LINK_NODE_ADMIN);
	if (fd < 0)
		return a;
	a->admin = admin_new(s->loop, fd);
	serve_rows(a);
	a->redirect = pages_redirect_new(s->loop, s->link, of->pods, a->admin);
	admin_on_levels(a->admin, on_levels, a);
	admin_before_metrics(a->admin, on_before_metrics, a);
	return a;
}

void pages_stop_accepting(struct pages *a)
{
	if (a && a->port)
		metrics_port_stop_accepting(a->port);
}

void pages_free(struct pages **pages)
{
	struct pages *a = take(*pages);

	if (!a)
		return;
	metrics_port_free(&a->port);
	pages_redirect_free(&a->redirect);
	admin_free(&a->admin);
	free(a);
}
