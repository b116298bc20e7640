/* broker_redirect_check_fuzz.c - any bytes as a worker's rules: what is accepted can be written
 * into the maps as it is, and asks for no more than the node allows.
 *
 * First byte: the pod's ceiling.  The rest lies over rules that are good, from the front.
 */
#include "broker/redirect/check.h"
#include "common/err.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct redirect_rules good = {.version = REDIRECT_RULES_VERSION,
    .flags = REDIRECT_OUTBOUND_ALL | REDIRECT_INBOUND_ALL,
    .proxy_uid = 1337,
    .proxy_gid = 1337,
    .outbound_port = 15001,
    .inbound_port = 15006,
    .tunnel_port = 15008,
    .dns_port = 15053,
    .strict = 1};

static void must(bool held)
{
	if (!held)
		abort();
}

static void check_rows(const struct redirect_rules *r)
{
	must(r->nrows <= REDIRECT_ROWS_MAX && r->ncidrs <= REDIRECT_CIDRS_MAX);
	must(r->ninterfaces <= REDIRECT_INTERFACES_MAX);
	for (uint32_t i = 0; i < r->nrows; i++)
		must(r->rows[i].kind && r->rows[i].kind != REDIRECT_PORT_INTERFACE &&
		     r->rows[i].kind <= REDIRECT_PORT_PROBE);
	for (uint32_t i = 0; i < r->ncidrs; i++)
		must(r->cidrs[i].bits <= 128 &&
		     !(r->cidrs[i].flags & (REDIRECT_CIDR_LOCAL | REDIRECT_CIDR_INTERFACE)));
	for (uint32_t i = 0; i < r->ninterfaces; i++)
		must(strnlen(r->interfaces[i], REDIRECT_INTERFACE_SIZE) - 1 <
		     REDIRECT_INTERFACE_SIZE - 1);
}

static void check_ceiling(const struct redirect_rules *r, const struct redirect_ceiling *c)
{
	must(r->strict == 1 || (c->permissive && r->strict == 0));
	must(r->proxy_uid & 0xffff && r->proxy_gid & 0xffff);
	must((r->proxy_uid & 0xffff) != c->worker_uid);
	must(!(r->flags & REDIRECT_TRACE));
	for (uint32_t i = 0; i < r->nrows; i++)
		must(r->rows[i].kind != REDIRECT_PORT_PROBE ||
		     (c->probes && rules_can_probe(r, r->rows[i].number)));
	must(!(r->flags & REDIRECT_DNS) ||
	     (r->dns_port && r->dns_port != r->outbound_port && r->dns_port != r->inbound_port &&
		 r->dns_port != r->tunnel_port));
	if (!c->exclusions || !c->is_manifests) {
		must(r->proxy_uid == 1337 && r->proxy_gid == 1337);
		must(!(r->flags & REDIRECT_DNS) || r->dns_port == 15053);
	}
	if (c->exclusions)
		return;
	must(r->outbound_port == 15001 && r->inbound_port == 15006 && r->tunnel_port == 15008);
	must(r->flags & REDIRECT_INBOUND_ALL);
	must((r->flags & REDIRECT_OUTBOUND_ALL) && !r->ninterfaces);
	for (uint32_t i = 0; i < r->nrows; i++)
		must(r->rows[i].kind != REDIRECT_PORT_OUTBOUND_EXCLUDE &&
		     r->rows[i].kind != REDIRECT_PORT_GROUP &&
		     (r->rows[i].kind != REDIRECT_PORT_INBOUND_EXCLUDE ||
			 r->rows[i].number == 15020 || r->rows[i].number == 15021 ||
			 r->rows[i].number == 15090));
	for (uint32_t i = 0; i < r->ncidrs; i++)
		must(!(r->cidrs[i].flags & REDIRECT_CIDR_EXCLUDE));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct redirect_ceiling c = {.worker_uid = 1338};
	struct redirect_rules r = good;
	struct err e = {.code = 0};

	if (!size)
		return 0;
	must(!redirect_ceiling_read("strict", &c, &e));
	c.permissive = data[0] & 1;
	c.exclusions = data[0] & 2;
	c.is_manifests = data[0] & 4;
	c.probes = data[0] & 8;
	size = size - 1 < sizeof(r) ? size - 1 : sizeof(r);
	for (size_t i = 0; i < size; i++)
		((uint8_t *)&r)[i] ^= data[i + 1];
	if (redirect_check(&r, &c, &e)) {
		must(e.code && *e.msg);
		return 0;
	}
	check_rows(&r);
	check_ceiling(&r, &c);
	return 0;
}
