/* pages_dns.c - one request, all pods. */
#include "dns.h"
#include "worker/admin/admin.h"
#include "worker/pod/dns.h"
#include "worker/pod/pod_services.h"
#include "worker/pods/pod.h"

/* A name is looked up where it would be: a pod that is not captured has no table. */
static json_t *dump(struct pod *p, const char *name)
{
	const struct pod_dns *dns = p->services ? pod_services_dns(p->services) : NULL;
	json_t *o = dns ? pod_dns_dump(dns) : json_object();
	char uid[UUID_TEXT_SIZE];

	uuid_format(&p->uid, uid);
	json_object_set_new(o, "pod", json_string(p->label));
	json_object_set_new(o, "uid", json_string(uid));
	if (!dns)
		json_object_set_new(o, "why_not", json_string(p->state.msg));
	else if (name)
		json_object_set_new(o, "resolved", pod_dns_resolve(dns, name));
	return o;
}

static void serve(void *ctx, struct http_request *req)
{
	const char *name = http_query(req, "name");
	json_t *all = json_array();

	for (struct pod *p = pod_first(ctx); p; p = p->next)
		json_array_append_new(all, dump(p, name));
	admin_reply_json(req, json_pack("{s:o}", "dns", all));
}

void pages_dns(struct admin *a, struct pod_registry *pods)
{
	admin_serve(a, "/dns", serve, pods);
}
