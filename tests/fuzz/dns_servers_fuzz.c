/* dns_servers_fuzz.c - which resolvers a pod's DNS has: from the pod's words and the node's setting
 * to the list.
 *
 * Lines: dns_upstream of the node, then dns_servers, istio_service_cidr and
 * istio_service_exclude_cidr of the pod.  What both readers accept gives the addresses that are
 * named, each once, and no other: the pod's, or else the node's in their order.
 */
#include "common/err.h"
#include "common/mem.h"
#include "mesh/traffic.h"
#include "worker/config/config.h"
#include "worker/pod/dns_servers.h"
#include "worker/pods/pod.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES = 4, NAMED_MAX = 512 };

struct named {
	char text[NAMED_MAX][INET6_ADDRSTRLEN];
	size_t n;
};

static void must(bool held)
{
	if (!held)
		abort();
}

static bool has(const struct named *all, const char *address)
{
	for (size_t i = 0; i < all->n; i++)
		if (!strcmp(all->text[i], address))
			return true;
	return false;
}

/* As the kernel writes it. */
static void name(struct named *out, const char *word, bool again)
{
	char address[INET6_ADDRSTRLEN];
	uint8_t bytes[16];
	int family = strchr(word, ':') ? AF_INET6 : AF_INET;

	if (!*word)
		return;
	must(inet_pton(family, word, bytes) == 1);
	must(inet_ntop(family, bytes, address, sizeof(address)) != NULL);
	if (out->n < NAMED_MAX && (again || !has(out, address)))
		memcpy(out->text[out->n++], address, sizeof(address));
}

static void name_all(struct named *out, const char *list, bool again)
{
	auto_free char *copy = mem_strdup(list);
	char *rest = copy, *word;

	out->n = 0;
	while ((word = strsep(&rest, ",")))
		name(out, word, again);
}

static void look(struct named *out, const struct redirect_plan *plan, const char *upstream)
{
	struct dns_server all[DNS_SERVERS_MAX];
	bool asked = plan->mode == REDIRECT_MODE_EBPF && plan->rules.flags & REDIRECT_DNS;

	must(pod_dns_servers(plan, upstream, all, &out->n) == (out->n > 0));
	must(out->n <= DNS_SERVERS_MAX && (asked || !out->n));
	for (size_t i = 0; i < out->n; i++)
		must(inet_ntop(all[i].family, all[i].address.bytes, out->text[i],
			 INET6_ADDRSTRLEN) != NULL);
}

static void check_servers(const struct named *found, const struct named *wanted)
{
	must(found->n == (wanted->n < DNS_SERVERS_MAX ? wanted->n : DNS_SERVERS_MAX));
	for (size_t i = 0; i < found->n; i++)
		must(has(wanted, found->text[i]));
}

static void check_order(const struct named *found, const struct named *wanted)
{
	for (size_t i = 0; i < found->n; i++)
		must(!strcmp(found->text[i], wanted->text[i]));
}

/* The setting, or "" where it is refused. */
static char *setting_of(char *upstream)
{
	char *argv[] = {"agentd-worker", "--dns-upstream", upstream, NULL};
	struct config c;
	struct err e;
	char *taken = mem_strdup("");

	if (!config_load(&c, &(struct config_file){"none", "", 0}, 3, argv, &e)) {
		free(taken);
		taken = mem_strdup(c.dns_upstream);
	}
	config_clear(&c);
	return taken;
}

static int plan_of(struct redirect_plan *plan, char *const line[LINES])
{
	static const char *const keys[] = {
	    "dns_servers", "istio_service_cidr", "istio_service_exclude_cidr"};
	const struct redirect_node node = {.mode = REDIRECT_MODE_EBPF, .strict = true};
	struct pod p = {.spec.redirect = json_pack("{s:s}", "redirect_dns", "true"),
	    .spec.annotations = json_object(),
	    .spec.env = json_object(),
	    .spec.proxy_uid = 1337,
	    .spec.proxy_gid = 1337};
	struct err e;
	int rc;

	for (unsigned i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (*line[i + 1])
			json_object_set_new(p.spec.redirect, keys[i], json_string(line[i + 1]));
	rc = traffic_read(plan, &p.spec, &node, &e);
	if (!rc && *line[1] && !json_object_get(p.spec.redirect, keys[0]))
		line[1][0] = '\0'; /* it was no UTF-8 */
	json_decref(p.spec.redirect);
	json_decref(p.spec.annotations);
	json_decref(p.spec.env);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct redirect_plan plan;
	static struct named found, wanted;
	auto_free char *text = mem_zalloc(size + LINES + 1), *taken = NULL;
	char *rest = text, *line[LINES];

	for (size_t i = 0; i < size; i++)
		text[i] = data[i] ? (char)data[i] : ' ';
	memset(text + size, '\n', LINES);
	for (unsigned i = 0; i < LINES; i++)
		line[i] = strsep(&rest, "\n");
	if (plan_of(&plan, line))
		return 0;
	look(&found, &plan, line[0]); /* whatever it is */
	taken = setting_of(line[0]);
	look(&found, &plan, taken);
	name_all(&wanted, line[1], false);
	if (wanted.n) {
		check_servers(&found, &wanted);
		return 0;
	}
	name_all(&wanted, taken, true);
	check_servers(&found, &wanted);
	check_order(&found, &wanted);
	return 0;
}
