/* check.c - rules as the worker sent them: are they possible, are they allowed?
 *
 * A compromised worker must not be able to write what the programs would not expect, nor to free a
 * pod from Envoy that the node does not let go (security-rules.md 6, REDIRECT_SET).
 */
#include "check.h"
#include "common/err.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
	ALL_FLAGS = REDIRECT_OUTBOUND_ALL | REDIRECT_INBOUND_ALL | REDIRECT_LOOPBACK_INCLUDED |
		    REDIRECT_DNS | REDIRECT_DNS_ALL | REDIRECT_GROUPS_INCLUDE,
	CIDR_FLAGS = REDIRECT_CIDR_EXCLUDE | REDIRECT_CIDR_INCLUDE | REDIRECT_CIDR_DNS,
	ENVOY_READY = 15021,
	ENVOY_METRICS = 15090,
};

/* Who answers DNS there would be given what Envoy is to have. */
static bool is_envoys(const struct redirect_rules *r, uint16_t port)
{
	return !port || port == r->outbound_port || port == r->inbound_port ||
	       port == r->tunnel_port;
}

static bool is_kind(uint32_t kind)
{
	return (kind >= REDIRECT_PORT_OUTBOUND_EXCLUDE && kind <= REDIRECT_PORT_GROUP) ||
	       kind == REDIRECT_PORT_PROBE;
}

static int check_shape(const struct redirect_rules *r, struct err *e)
{
	if (r->version != REDIRECT_RULES_VERSION)
		return err_set(e, EINVAL, "rules of version %u", r->version);
	if (r->flags & ~(uint32_t)ALL_FLAGS || r->strict > 1 || r->nrows > REDIRECT_ROWS_MAX ||
	    r->ncidrs > REDIRECT_CIDRS_MAX || r->ninterfaces > REDIRECT_INTERFACES_MAX)
		return err_set(e, EINVAL, "rules with unknown flags or too many rows");
	if (!r->outbound_port || !r->inbound_port || r->outbound_port == r->inbound_port)
		return err_set(e, EINVAL, "rules without two ports of Envoy");
	if (r->flags & REDIRECT_DNS && is_envoys(r, r->dns_port))
		return err_set(e, EINVAL, "rules without a dns_port of its own (%u)", r->dns_port);
	for (uint32_t i = 0; i < r->nrows; i++)
		if (!is_kind(r->rows[i].kind))
			return err_set(e, EINVAL, "a row of kind %u", r->rows[i].kind);
	for (uint32_t i = 0; i < r->ncidrs; i++)
		if (r->cidrs[i].bits > 128 || r->cidrs[i].flags & ~(uint32_t)CIDR_FLAGS)
			return err_set(e, EINVAL, "an invalid address range");
	for (uint32_t i = 0; i < r->ninterfaces; i++)
		if (!r->interfaces[i][0] || !memchr(r->interfaces[i], 0, REDIRECT_INTERFACE_SIZE))
			return err_set(e, EINVAL, "an interface without a name");
	return 0;
}

/* Uids count modulo 65536 (a pod may have a user namespace of its own), so root's is 0 of any. */
static int check_proxy(
    const struct redirect_rules *r, const struct redirect_ceiling *c, struct err *e)
{
	if (!(r->proxy_uid & 0xffff) || !(r->proxy_gid & 0xffff))
		return err_set(e, EPERM,
		    "the proxy's uid and gid must not be root's: connections of root would go past "
		    "Envoy");
	if ((r->proxy_uid & 0xffff) == (c->worker_uid & 0xffff))
		return err_set(e, EPERM, "the proxy's uid must not be that of agentd's worker");
	return 0;
}

static int not_allowed(struct err *e, const char *what)
{
	return err_set(e, EPERM, "this node does not allow %s (--redirect-allow)", what);
}

static int check_number(uint32_t is, uint32_t allowed, const char *key, struct err *e)
{
	char what[64];

	if (is == allowed)
		return 0;
	snprintf(what, sizeof(what), "%s %u, but %u", key, is, allowed);
	return not_allowed(e, what);
}

/* Everything of this user goes past Envoy, and what is sent to this port is the worker's. */
static int check_numbers(
    const struct redirect_rules *r, const struct redirect_ceiling *c, struct err *e)
{
	if (c->exclusions && c->is_manifests)
		return 0;
	if (check_number(r->proxy_uid, c->proxy_uid, "proxy_uid", e) ||
	    check_number(r->proxy_gid, c->proxy_gid, "proxy_gid", e))
		return -1;
	return r->flags & REDIRECT_DNS ? check_number(r->dns_port, c->dns_port, "dns_port", e) : 0;
}

static int check_ports(
    const struct redirect_rules *r, const struct redirect_ceiling *c, struct err *e)
{
	if (check_number(r->outbound_port, c->envoy_port, "envoy_port", e) ||
	    check_number(r->inbound_port, c->inbound_capture_port, "inbound_capture_port", e))
		return -1;
	return check_number(r->tunnel_port, c->inbound_tunnel_port, "inbound_tunnel_port", e);
}

static bool has_outbound_exclusions(const struct redirect_rules *r)
{
	if (!(r->flags & REDIRECT_OUTBOUND_ALL) || (r->flags & REDIRECT_GROUPS_INCLUDE) ||
	    r->ninterfaces)
		return true;
	for (uint32_t i = 0; i < r->nrows; i++)
		if (r->rows[i].kind == REDIRECT_PORT_OUTBOUND_EXCLUDE ||
		    r->rows[i].kind == REDIRECT_PORT_GROUP)
			return true;
	for (uint32_t i = 0; i < r->ncidrs; i++)
		if (r->cidrs[i].flags & REDIRECT_CIDR_EXCLUDE)
			return true;
	return false;
}

/* Those of Envoy and of the status page, which every pod has (istio-agent.md 11.3). */
static bool has_inbound_exclusions(const struct redirect_rules *r, const struct redirect_ceiling *c)
{
	if (!(r->flags & REDIRECT_INBOUND_ALL))
		return true;
	for (uint32_t i = 0; i < r->nrows; i++)
		if (r->rows[i].kind == REDIRECT_PORT_INBOUND_EXCLUDE &&
		    r->rows[i].number != ENVOY_METRICS && r->rows[i].number != ENVOY_READY &&
		    r->rows[i].number != c->status_port)
			return true;
	return false;
}

/* What Envoy and agentd serve there is no app's to be asked for. */
static int check_probes(
    const struct redirect_rules *r, const struct redirect_ceiling *c, struct err *e)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < r->nrows; i++) {
		uint32_t port = r->rows[i].number;

		if (r->rows[i].kind != REDIRECT_PORT_PROBE)
			continue;
		if (!c->probes)
			return not_allowed(e, "probe ports");
		if (!rules_can_probe(r, port) || port == c->status_port ||
		    ++n > REDIRECT_PROBES_MAX)
			return err_set(e, EINVAL, "%u as one of at most %d probe ports", port,
			    REDIRECT_PROBES_MAX);
	}
	return 0;
}

int redirect_check(
    const struct redirect_rules *rules, const struct redirect_ceiling *c, struct err *e)
{
	if (check_shape(rules, e) || check_proxy(rules, c, e) || check_numbers(rules, c, e) ||
	    check_probes(rules, c, e))
		return -1;
	if (!rules->strict && !c->permissive)
		return not_allowed(e, "the policy permissive");
	if (c->exclusions)
		return 0;
	if (has_outbound_exclusions(rules))
		return not_allowed(e, "outbound exclusions");
	if (has_inbound_exclusions(rules, c))
		return not_allowed(e, "inbound exclusions");
	return check_ports(rules, c, e);
}
