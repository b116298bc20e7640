/* pcds.c - response -> first resource -> (delta: its Any) -> ProxyConfig -> each PEM, checked.
 *
 * The message does not say which flavour it is.  A state-of-the-world resource is an Any, whose
 * field 1 is the type; a delta one has its version there and the Any in field 2.
 */
#include "pcds.h"
#include "../base/err.h"
#include "../base/mem.h"
#include "../security/x509.h"
#include "discovery.h"
#include <string.h>

enum { RESOURCES = 2, TYPE_OR_VERSION = 1, PAYLOAD = 2, CA_CERTIFICATES_PEM = 34 };

struct anchors {
	char *pem;
	size_t n, size; /* as they came */
};

/* 1: the first of that number; 0: there is none; -1: malformed. */
static int first_payload(struct pbwire msg, uint32_t number, struct pbwire *out)
{
	struct pbwire_field f;
	int more;

	while ((more = pbwire_next(&msg, &f)) > 0)
		if (f.number == number && f.type == PBWIRE_BYTES) {
			*out = f.bytes;
			return 1;
		}
	return more;
}

static bool is_config(struct pbwire any)
{
	char type[sizeof(TYPE_PROXY_CONFIG)];
	struct pbwire name;

	return first_payload(any, TYPE_OR_VERSION, &name) > 0 &&
	       !pbwire_string(name, type, sizeof(type)) && !strcmp(type, TYPE_PROXY_CONFIG);
}

/* 0: an empty one. */
static int find_config(struct pbwire msg, struct pbwire *config)
{
	struct pbwire resource, any;

	if (first_payload(msg, RESOURCES, &resource) <= 0)
		return -1;
	if (is_config(resource))
		return first_payload(resource, PAYLOAD, config);
	if (first_payload(resource, PAYLOAD, &any) <= 0 || !is_config(any))
		return -1;
	return first_payload(any, PAYLOAD, config);
}

static int add(struct anchors *a, struct pbwire payload, struct err *e)
{
	auto_free char *raw = NULL, *pem = NULL, *before = NULL;
	size_t size = payload.left;

	a->size += size;
	if (++a->n > PCDS_CERTIFICATES_MAX || a->size > PCDS_SIZE_MAX)
		return err_set(e, ERR_INVALID, "more than %d trust anchors or %d bytes",
		    PCDS_CERTIFICATES_MAX, PCDS_SIZE_MAX);
	raw = mem_zalloc(size + 1);
	pbwire_copy(payload, raw, size);
	pem = x509_normalise_pem(raw, size, e);
	if (!pem)
		return err_wrap(e, "trust anchor %zu", a->n);
	before = take(a->pem);
	a->pem = mem_printf("%s%s", before, pem);
	return 0;
}

static int read_config(struct anchors *a, struct pbwire config, struct err *e)
{
	struct pbwire_field f;
	int more;

	while ((more = pbwire_next(&config, &f)) > 0)
		if (f.number == CA_CERTIFICATES_PEM && f.type == PBWIRE_BYTES && add(a, f.bytes, e))
			return -1;
	return more < 0 ? err_set(e, ERR_PROTOCOL, "malformed ProxyConfig") : 0;
}

char *pcds_read(const struct rpc_msg *response, struct err *e)
{
	struct anchors a = {.pem = mem_strdup("")};
	struct pbwire config;
	int found = find_config(discovery_reader(response), &config);

	if (found < 0)
		err_set(e, ERR_PROTOCOL, "no ProxyConfig in it");
	if (found < 0 || (found > 0 && read_config(&a, config, e))) {
		free(a.pem);
		return NULL;
	}
	return a.pem;
}
