/* check.c - rules as the worker sent them: are they possible, are they allowed?
 *
 * A compromised worker must not be able to write what the programs would not expect, nor to free a
 * pod from Envoy that the node does not let go (security-rules.md 6, REDIRECT_SET).
 */
#include "check.h"
#include "common/err.h"
#include <errno.h>
#include <string.h>

enum {
	ALL_FLAGS = REDIRECT_OUTBOUND_ALL | REDIRECT_INBOUND_ALL | REDIRECT_LOOPBACK_INCLUDED |
		    REDIRECT_DNS | REDIRECT_DNS_ALL | REDIRECT_GROUPS_INCLUDE,
	CIDR_FLAGS = REDIRECT_CIDR_EXCLUDE | REDIRECT_CIDR_INCLUDE | REDIRECT_CIDR_DNS,
};

static int check_shape(const struct redirect_rules *r, struct err *e)
{
	if (r->version != REDIRECT_RULES_VERSION)
		return err_set(e, EINVAL, "rules of version %u", r->version);
	if (r->flags & ~(uint32_t)ALL_FLAGS || r->strict > 1 || r->nrows > REDIRECT_ROWS_MAX ||
	    r->ncidrs > REDIRECT_CIDRS_MAX || r->ninterfaces > REDIRECT_INTERFACES_MAX)
		return err_set(e, EINVAL, "rules with unknown flags or too many rows");
	if (!r->outbound_port || !r->inbound_port || r->outbound_port == r->inbound_port)
		return err_set(e, EINVAL, "rules without two ports of Envoy");
	for (uint32_t i = 0; i < r->nrows; i++)
		if (r->rows[i].kind < REDIRECT_PORT_OUTBOUND_EXCLUDE ||
		    r->rows[i].kind > REDIRECT_PORT_GROUP)
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

static bool has_exclusions(const struct redirect_rules *r)
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

int redirect_check(
    const struct redirect_rules *rules, const struct redirect_ceiling *c, struct err *e)
{
	if (check_shape(rules, e) || check_proxy(rules, c, e))
		return -1;
	if (!rules->strict && !c->permissive)
		return err_set(
		    e, EPERM, "this node does not allow the policy permissive (--redirect-allow)");
	if (has_exclusions(rules) && !c->exclusions)
		return err_set(
		    e, EPERM, "this node does not allow outbound exclusions (--redirect-allow)");
	return 0;
}

int redirect_ceiling_read(const char *allow, struct redirect_ceiling *c, struct err *e)
{
	const char *at = allow ? allow : "strict";

	while (*at) {
		size_t n = strcspn(at, ",");
		if (n == strlen("permissive") && !strncmp(at, "permissive", n))
			c->permissive = true;
		else if (n == strlen("exclusions") && !strncmp(at, "exclusions", n))
			c->exclusions = true;
		else if (n != strlen("strict") || strncmp(at, "strict", n) != 0)
			return err_set(e, EINVAL,
			    "--redirect-allow takes strict, permissive and exclusions, not "
			    "\"%.*s\"",
			    (int)n, at);
		at += n + (at[n] == ',');
	}
	return 0;
}
