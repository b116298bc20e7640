/* redirect.c - one table of keys; each has a reader that puts it into the rules.
 *
 * The order of the table is the order of reading: a reader may look at what earlier ones wrote.
 */
#include "traffic.h"
#include "cidr.h"
#include "common/err.h"
#include "pod.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(...) #__VA_ARGS__
#define TEXT(...) TEXT_OF(__VA_ARGS__)

enum { LIST_MAX = 64, TUNNEL_PORT = 15008, ENVOY_METRICS = 15090, ENVOY_READY = 15021 };

struct reading {
	struct redirect_plan *out;
	const struct redirect_node *node;
	bool all_inbound; /* include `*` */
};

typedef int (*key_read)(struct reading *r, const char *key, const char *value, struct err *e);

static int bad(struct err *e, const char *key, const char *value, const char *wants)
{
	char shown[64];

	return err_set(e, ERR_INVALID, "redirect: %s is \"%s\", must be %s", key,
	    err_printable(shown, sizeof(shown), value, (unsigned)strlen(value)), wants);
}

/* --- kinds of values --- */

static int parse_number(const char *text, size_t n, unsigned long max, uint32_t *out)
{
	char copy[12] = "";
	unsigned long value;

	if (!n || n >= sizeof(copy) || strspn(text, "0123456789") < n)
		return -1;
	memcpy(copy, text, n);
	value = strtoul(copy, NULL, 10);
	*out = (uint32_t)value;
	return value > max ? -1 : 0;
}

static int parse_port(const char *key, const char *value, uint16_t *out, struct err *e)
{
	uint32_t port;

	if (parse_number(value, strlen(value), 65535, &port) || !port)
		return bad(e, key, value, "a port (1 to 65535)");
	*out = (uint16_t)port;
	return 0;
}

static int parse_bool(const char *key, const char *value, bool *out, struct err *e)
{
	*out = !strcmp(value, "true") || !strcmp(value, "1");
	if (!*out && strcmp(value, "false") != 0 && strcmp(value, "0") != 0 && *value)
		return bad(e, key, value, "true or false");
	return 0;
}

/* 1: it was not there yet; -1: too many. */
static int add_row(struct redirect_rules *rules, uint32_t kind, uint32_t number)
{
	for (uint32_t i = 0; i < rules->nrows; i++)
		if (rules->rows[i].kind == kind && rules->rows[i].number == number)
			return 0;
	if (rules->nrows == REDIRECT_ROWS_MAX)
		return -1;
	rules->rows[rules->nrows++] = (struct redirect_row){kind, number};
	return 1;
}

struct list {
	enum redirect_port_kind kind;
	unsigned long min, max;
	const char *wants;
};
static const struct list port_list = {0, 1, 65535, "ports (1 to 65535), separated by commas"};
static const struct list group_list = {REDIRECT_PORT_GROUP, 0, UINT32_MAX - 1,
    "numeric group ids, separated by commas (names are known inside the pod only)"};

static int read_list(
    struct reading *r, const struct list *l, const char *key, const char *value, struct err *e)
{
	int count = 0;

	for (const char *at = value; *at;) {
		uint32_t number;

		at += strspn(at, " ");
		const size_t size = strcspn(at, ",");
		size_t n = size;

		while (n && at[n - 1] == ' ')
			n--;
		if (n && (parse_number(at, n, l->max, &number) || number < l->min))
			return bad(e, key, value, l->wants);
		int added = n ? add_row(&r->out->rules, l->kind, number) : 0;
		if (added < 0 || (count += added) > LIST_MAX)
			return err_set(
			    e, ERR_INVALID, "redirect: %s has more than %d entries", key, LIST_MAX);
		at += size + (at[size] == ',');
	}
	return 0;
}

static int read_ports(struct reading *r, enum redirect_port_kind kind, const char *key,
    const char *value, struct err *e)
{
	struct list l = port_list;

	l.kind = kind;
	return read_list(r, &l, key, value, e);
}

/* --- readers --- */

static int read_mode(struct reading *r, const char *key, const char *value, struct err *e)
{
	if (!*value)
		r->out->mode = r->node->mode;
	else if (traffic_mode_parse(&r->out->mode, value))
		return bad(e, key, value, "ebpf, istio-cni, istio-init or none");
	return 0;
}

static int read_interception(struct reading *r, const char *key, const char *value, struct err *e)
{
	if (!strcmp(value, "NONE"))
		r->out->mode = REDIRECT_MODE_NONE;
	else if (r->out->mode == REDIRECT_MODE_EBPF && *value && strcmp(value, "REDIRECT") != 0)
		return bad(e, key, value,
		    "REDIRECT or NONE (TPROXY needs iptables: mode istio-cni or istio-init)");
	return 0;
}

static int read_policy(struct reading *r, const char *key, const char *value, struct err *e)
{
	if (!*value)
		r->out->rules.strict = r->node->strict;
	else if (!strcmp(value, "strict") || !strcmp(value, "permissive"))
		r->out->rules.strict = !strcmp(value, "strict");
	else
		return bad(e, key, value, "strict or permissive");
	return 0;
}

static int read_envoy_port(struct reading *r, const char *key, const char *value, struct err *e)
{
	return parse_port(key, value, &r->out->rules.outbound_port, e);
}

static int read_capture_port(struct reading *r, const char *key, const char *value, struct err *e)
{
	if (parse_port(key, value, &r->out->rules.inbound_port, e))
		return -1;
	if (r->out->rules.inbound_port == r->out->rules.outbound_port)
		return bad(e, key, value, "a port other than envoy_port");
	return 0;
}

static int read_tunnel_port(struct reading *r, const char *key, const char *value, struct err *e)
{
	return parse_port(key, value, &r->out->rules.tunnel_port, e);
}

static int read_inbound_ports(struct reading *r, const char *key, const char *value, struct err *e)
{
	r->all_inbound = !strcmp(value, "*");
	if (!r->all_inbound)
		return read_ports(r, REDIRECT_PORT_INBOUND_INCLUDE, key, value, e);
	r->out->rules.flags |= REDIRECT_INBOUND_ALL;
	return 0;
}

/* With a list of included ports istio does not look at the excluded ones. */
static int read_inbound_excluded(
    struct reading *r, const char *key, const char *value, struct err *e)
{
	const uint32_t always[] = {ENVOY_METRICS, ENVOY_READY, r->node->status_port};

	if (!r->all_inbound)
		return 0;
	if (read_ports(r, REDIRECT_PORT_INBOUND_EXCLUDE, key, value, e))
		return -1;
	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		if (always[i] &&
		    add_row(&r->out->rules, REDIRECT_PORT_INBOUND_EXCLUDE, always[i]) < 0)
			return bad(e, key, value, "a shorter list");
	return 0;
}

static int read_service_cidr(struct reading *r, const char *key, const char *value, struct err *e)
{
	if (!strcmp(value, "*")) {
		r->out->rules.flags |= REDIRECT_OUTBOUND_ALL;
		return 0;
	}
	if (cidr_add(&r->out->rules, key, value, REDIRECT_CIDR_INCLUDE, e))
		return err_wrap(e, "redirect");
	if (cidr_has_loopback(&r->out->rules, REDIRECT_CIDR_INCLUDE))
		r->out->rules.flags |= REDIRECT_LOOPBACK_INCLUDED;
	return 0;
}

static int read_service_excluded(
    struct reading *r, const char *key, const char *value, struct err *e)
{
	if (cidr_add(&r->out->rules, key, value, REDIRECT_CIDR_EXCLUDE, e))
		return err_wrap(e, "redirect");
	return 0;
}

static int read_outbound_ports(struct reading *r, const char *key, const char *value, struct err *e)
{
	return read_ports(r, REDIRECT_PORT_OUTBOUND_INCLUDE, key, value, e);
}

static int read_outbound_excluded(
    struct reading *r, const char *key, const char *value, struct err *e)
{
	return read_ports(r, REDIRECT_PORT_OUTBOUND_EXCLUDE, key, value, e);
}

static int read_interfaces(struct reading *r, const char *key, const char *value, struct err *e)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_.@-";
	struct redirect_rules *rules = &r->out->rules;

	for (const char *at = value; *at;) {
		size_t n = strcspn(at, ",");

		if (n >= REDIRECT_INTERFACE_SIZE || strspn(at, allowed) < n)
			return bad(e, key, value,
			    "names of interfaces, separated by commas: each of at most 15 "
			    "characters, "
			    "which are letters, digits and _ . @ -");
		if (n && rules->ninterfaces == REDIRECT_INTERFACES_MAX)
			return bad(e, key, value, "at most 16 names of interfaces");
		if (n)
			memcpy(rules->interfaces[rules->ninterfaces++], at, n);
		at += n + (at[n] == ',');
	}
	return 0;
}

static int refuse_kubevirt(struct reading *r, const char *key, const char *value, struct err *e)
{
	(void)r;
	if (!*value)
		return 0;
	return bad(e, key, value,
	    "empty: a virtual machine's packets belong to no socket here; use mode istio-cni");
}

static int read_groups(struct reading *r, const char *key, const char *value, struct err *e)
{
	if (!strcmp(value, "*"))
		return 0;
	r->out->rules.flags |= REDIRECT_GROUPS_INCLUDE;
	return read_list(r, &group_list, key, value, e);
}

static int read_groups_excluded(
    struct reading *r, const char *key, const char *value, struct err *e)
{
	if (!(r->out->rules.flags & REDIRECT_GROUPS_INCLUDE))
		return read_list(r, &group_list, key, value, e);
	if (*value)
		return bad(e, key, value, "empty beside outbound_owner_groups");
	return 0;
}

static int read_dns(struct reading *r, const char *key, const char *value, struct err *e)
{
	bool on;

	if (parse_bool(key, value, &on, e))
		return -1;
	if (on)
		r->out->rules.flags |= REDIRECT_DNS;
	return 0;
}

static int read_dns_port(struct reading *r, const char *key, const char *value, struct err *e)
{
	return parse_port(key, value, &r->out->rules.dns_port, e);
}

/* As an init container would find them in the pod's resolv.conf.  A range would make resolvers of
 * addresses inside of it that another list names. */
static int read_dns_servers(struct reading *r, const char *key, const char *value, struct err *e)
{
	struct redirect_rules *rules = &r->out->rules;

	if (!*value && (rules->flags & REDIRECT_DNS))
		rules->flags |= REDIRECT_DNS_ALL;
	if (strchr(value, '/'))
		return err_set(e, ERR_INVALID,
		    "redirect: %s: a resolver is one address, without a \"/\"", key);
	if (cidr_add(rules, key, value, REDIRECT_CIDR_DNS, e))
		return err_wrap(e, "redirect");
	return 0;
}

/* Where the kubelet is let in.  After the pod's own ports. */
static int read_probe_ports(struct reading *r, const char *key, const char *value, struct err *e)
{
	const struct redirect_rules *rules = &r->out->rules;

	if (read_ports(r, REDIRECT_PORT_PROBE, key, value, e))
		return -1;
	for (uint32_t i = 0; i < rules->nrows; i++)
		if (rules->rows[i].kind == REDIRECT_PORT_PROBE &&
		    (!rules_can_probe(rules, rules->rows[i].number) ||
			rules->rows[i].number == r->node->status_port))
			return err_set(e, ERR_INVALID,
			    "redirect: %s has %u, must be ports (1 to 65535) other than Envoy's "
			    "and agentd's: %s",
			    key, rules->rows[i].number, TEXT(REDIRECT_RESERVED_PORTS));
	return 0;
}

/* There is no connection tracking here that could find a packet invalid, and both families are
 * captured whatever this says. */
static int read_needless(struct reading *r, const char *key, const char *value, struct err *e)
{
	bool on;

	(void)r;
	return parse_bool(key, value, &on, e);
}

/* A machine's pod that runs does not end with what it asked for. */
static int read_gone(struct reading *r, const char *key, const char *value, struct err *e)
{
	(void)r, (void)key, (void)value, (void)e;
	return 0;
}

#define TRAFFIC "traffic.sidecar.istio.io/"
static const struct key {
	const char *flag, *annotation, *variable, *otherwise;
	key_read read;
} keys[] = {
    {"mode", "agentd.node.mesh/redirect", NULL, "", read_mode},
    {"istio_inbound_interception_mode", "sidecar.istio.io/interceptionMode",
	"ISTIO_INBOUND_INTERCEPTION_MODE", "", read_interception},
    {"policy", "agentd.node.mesh/redirectPolicy", NULL, "", read_policy},
    {"envoy_port", NULL, "ENVOY_PORT", "15001", read_envoy_port},
    {"inbound_capture_port", NULL, "INBOUND_CAPTURE_PORT", "15006", read_capture_port},
    {"inbound_tunnel_port", NULL, "INBOUND_TUNNEL_PORT", "15008", read_tunnel_port},
    {"istio_inbound_ports", TRAFFIC "includeInboundPorts", "ISTIO_INBOUND_PORTS", "*",
	read_inbound_ports},
    {"istio_local_exclude_ports", TRAFFIC "excludeInboundPorts", "ISTIO_LOCAL_EXCLUDE_PORTS", "",
	read_inbound_excluded},
    {"istio_service_cidr", TRAFFIC "includeOutboundIPRanges", "ISTIO_SERVICE_CIDR", "*",
	read_service_cidr},
    {"istio_service_exclude_cidr", TRAFFIC "excludeOutboundIPRanges", "ISTIO_SERVICE_EXCLUDE_CIDR",
	"", read_service_excluded},
    {"istio_outbound_ports", TRAFFIC "includeOutboundPorts", "ISTIO_OUTBOUND_PORTS", "",
	read_outbound_ports},
    {"istio_local_outbound_ports_exclude", TRAFFIC "excludeOutboundPorts",
	"ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE", "", read_outbound_excluded},
    {"istio_exclude_interfaces", TRAFFIC "excludeInterfaces", "ISTIO_EXCLUDE_INTERFACES", "",
	read_interfaces},
    {"kube_virt_interfaces", TRAFFIC "kubevirtInterfaces", "KUBE_VIRT_INTERFACES", "",
	refuse_kubevirt},
    {"reroute_virtual_interfaces", "istio.io/reroute-virtual-interfaces", NULL, "",
	refuse_kubevirt},
    {"outbound_owner_groups", NULL, "ISTIO_OUTBOUND_OWNER_GROUPS", "*", read_groups},
    {"outbound_owner_groups_exclude", NULL, "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "",
	read_groups_excluded},
    {"redirect_dns", NULL, "ISTIO_META_DNS_CAPTURE", "false", read_dns},
    {"dns_port", NULL, NULL, "15053", read_dns_port},
    {"dns_servers", NULL, NULL, "", read_dns_servers},
    {"probe_ports", "agentd.node.mesh/probePorts", "AGENTD_PROBE_PORTS", "", read_probe_ports},
    {"drop_invalid", NULL, "INVALID_DROP", "false", read_needless},
    {"dual_stack", NULL, "ISTIO_DUAL_STACK", "false", read_needless},
    {"accelerate", NULL, NULL, "", read_gone},
};
enum { NKEYS = sizeof(keys) / sizeof(keys[0]), NWHETHER = 3 /* mode to policy */ };

/* --- reading --- */

static const char *text_of(const json_t *from, const char *name)
{
	return name ? json_string_value(json_object_get(from, name)) : NULL;
}

static const char *value_of(const struct pod_spec *p, const struct key *k, const char **name)
{
	const char *value = text_of(p->redirect, *name = k->flag);

	if (!value)
		value = text_of(p->annotations, *name = k->annotation);
	if (!value)
		value = text_of(p->env, *name = k->variable);
	if (value)
		return value;
	*name = k->flag;
	return k->otherwise;
}

static bool is_key(const char *name)
{
	for (int i = 0; i < NKEYS; i++)
		if (!strcmp(keys[i].flag, name))
			return true;
	return false;
}

static int check_names(const struct pod_spec *p, struct err *e)
{
	char shown[64];
	const char *name;
	json_t *value;

	json_object_foreach (p->redirect, name, value) {
		if (!is_key(name))
			return err_set(e, ERR_INVALID, "redirect: no such key \"%s\"",
			    err_printable(shown, sizeof(shown), name, (unsigned)strlen(name)));
		if (!json_is_string(value))
			return err_set(e, ERR_INVALID, "redirect: %s must be text", name);
	}
	return 0;
}

int traffic_read(struct redirect_plan *out, const struct pod_spec *p, const struct redirect_node *n,
    struct err *e)
{
	struct reading r = {.out = out, .node = n};

	memset(out, 0, sizeof(*out));
	out->rules.version = REDIRECT_RULES_VERSION;
	out->rules.proxy_uid = p->proxy_uid;
	out->rules.proxy_gid = p->proxy_gid;
	if (check_names(p, e))
		return -1;
	for (int i = 0; i < NKEYS; i++) {
		const char *name, *value = value_of(p, &keys[i], &name);
		if (keys[i].read(&r, name, value, e))
			return -1;
		if (out->mode != REDIRECT_MODE_EBPF && i >= 1) {
			memset(&out->rules, 0, sizeof(out->rules));
			return 0; /* the rest means nothing to us */
		}
	}
	cidr_flatten(&out->rules);
	return 0;
}

bool traffic_is_strict(const struct pod_spec *p, const struct redirect_node *n)
{
	struct redirect_plan plan = {.mode = n->mode, .rules.strict = n->strict};
	struct reading r = {.out = &plan, .node = n};
	struct err e;

	for (int i = 0; i < NWHETHER; i++) {
		const char *name, *value = value_of(p, &keys[i], &name);
		(void)keys[i].read(&r, name, value, &e);
	}
	return plan.mode == REDIRECT_MODE_EBPF && plan.rules.strict;
}

void traffic_keys_each(void (*one)(void *ctx, const char *flag, const char *annotation,
			   const char *variable, const char *otherwise),
    void *ctx)
{
	for (int i = 0; i < NKEYS; i++)
		one(ctx, keys[i].flag, keys[i].annotation, keys[i].variable, keys[i].otherwise);
}

/* --- names --- */

static const char *const modes[] = {[REDIRECT_MODE_NONE] = "none",
    [REDIRECT_MODE_EBPF] = "ebpf",
    [REDIRECT_MODE_ISTIO_CNI] = "istio-cni",
    [REDIRECT_MODE_ISTIO_INIT] = "istio-init"};

int traffic_mode_parse(enum redirect_mode *out, const char *text)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(modes[i], text)) {
			*out = (enum redirect_mode)i;
			return 0;
		}
	return -1;
}

const char *traffic_mode_name(enum redirect_mode m)
{
	return modes[m];
}

enum fate { PASS, REDIRECT, DROP };
static const struct {
	const char *name, *word;
	enum fate fate;
} verdicts[REDIRECT_VERDICTS] = {
    [REDIRECT_PASS_NOT_TCP] = {"not TCP", "not_tcp", PASS},
    [REDIRECT_PASS_PORT_EXCLUDED] = {"excluded outbound port", "excluded_outbound_port", PASS},
    [REDIRECT_PASS_PROXY_PASSTHROUGH] = {"from 127.0.0.6 or ::6", "proxy_passthrough", PASS},
    [REDIRECT_TO_SELF] = {"the proxy calls its own pod", "proxy_to_own_pod", REDIRECT},
    [REDIRECT_PASS_LOCAL] = {"the app calls its own pod", "app_to_own_pod", PASS},
    [REDIRECT_PASS_PROXY_UID] = {"the proxy's uid", "proxy_uid", PASS},
    [REDIRECT_PASS_PROXY_GID] = {"the proxy's gid", "proxy_gid", PASS},
    [REDIRECT_PASS_GROUP] = {"owner group", "owner_group", PASS},
    [REDIRECT_TO_DNS] = {"DNS", "dns", REDIRECT},
    [REDIRECT_PASS_NO_DNS] = {"DNS, but the proxy does not listen", "dns_not_served", PASS},
    [REDIRECT_PASS_LOOPBACK] = {"loopback", "loopback", PASS},
    [REDIRECT_PASS_CIDR_EXCLUDED] = {"excluded range", "excluded_range", PASS},
    [REDIRECT_TO_OUTBOUND_PORT] = {"included outbound port", "included_outbound_port", REDIRECT},
    [REDIRECT_TO_OUTBOUND] = {"included range", "included_range", REDIRECT},
    [REDIRECT_PASS_NOT_INCLUDED] = {"in no included range", "not_included", PASS},
    [REDIRECT_PASS_INTERFACE] = {"excluded interface", "excluded_interface", PASS},
    [REDIRECT_PASS_TUNNEL] = {"tunnel port", "tunnel_port", PASS},
    [REDIRECT_PASS_INBOUND_EXCLUDED] = {"excluded inbound port", "excluded_inbound_port", PASS},
    [REDIRECT_PASS_INBOUND_NOT_INCLUDED] = {"no included inbound port", "not_included_inbound_port",
	PASS},
    [REDIRECT_PASS_INBOUND_LOCAL] = {"from the pod itself", "from_own_pod", PASS},
    [REDIRECT_TO_INBOUND] = {"inbound", "inbound", REDIRECT},
    [REDIRECT_DROP_NO_LISTENER] = {"Envoy does not listen", "no_listener", DROP},
    [REDIRECT_DROP_GATE] = {"the pod is not live yet", "not_live", DROP},
    [REDIRECT_LOST_DESTINATION] = {"original destination lost", "destination_lost", DROP},
    [REDIRECT_DROP_NO_MEMORY] = {"no memory for the socket", "no_memory", DROP},
    [REDIRECT_PASS_PROBE] = {"the kubelet's probe", "probe", PASS},
};

const char *traffic_verdict_name(enum redirect_verdict v)
{
	return verdicts[v].name;
}

const char *traffic_verdict_word(enum redirect_verdict v)
{
	return verdicts[v].word;
}

bool traffic_verdict_redirects(enum redirect_verdict v)
{
	return verdicts[v].fate == REDIRECT;
}

bool traffic_verdict_drops(enum redirect_verdict v)
{
	return verdicts[v].fate == DROP;
}
