/* pcds.c - response -> first resource -> ProxyConfig -> each PEM that is one counts. */
#include "pcds.h"
#include "common/err.h"
#include "common/mem.h"
#include "discovery.h"
#include <stdio.h>
#include <string.h>

enum { CA_CERTIFICATES_PEM = 34 };

struct anchors {
	char *pem;
	size_t n, size; /* as they came */
	char *note;
};

static void add_note(struct anchors *a, const char *text)
{
	size_t n = strlen(a->note);

	snprintf(
	    a->note + n, ROOTS_NOTE_SIZE - n, "%strust anchor %zu: %s", n ? "; " : "", a->n, text);
}

static int add(struct anchors *a, struct pbwire payload, struct err *e)
{
	auto_free char *raw = NULL, *pem = NULL, *before = NULL;
	char note[ROOTS_NOTE_SIZE];
	size_t size = payload.left;
	struct err bad;

	a->size += size;
	if (++a->n > PCDS_CERTIFICATES_MAX || a->size > PCDS_SIZE_MAX)
		return err_set(e, ERR_INVALID, "more than %d trust anchors or %d bytes",
		    PCDS_CERTIFICATES_MAX, PCDS_SIZE_MAX);
	raw = mem_zalloc(size + 1);
	pbwire_copy(payload, raw, size);
	pem = roots_read(raw, size, note, &bad);
	if (!pem || *note)
		add_note(a, pem ? note : bad.msg);
	if (!pem)
		return 0;
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
	if (more < 0)
		return err_set(e, ERR_PROTOCOL, "malformed ProxyConfig");
	return a->n && !*a->pem ? err_set(e, ERR_INVALID, "%s", a->note) : 0;
}

char *pcds_read(const struct rpc_msg *response, char note[ROOTS_NOTE_SIZE], struct err *e)
{
	struct anchors a = {.pem = mem_strdup(""), .note = note};
	struct pbwire config;
	int found =
	    discovery_first_resource(discovery_reader(response), TYPE_PROXY_CONFIG, &config);

	*note = '\0';
	if (found < 0)
		err_set(e, ERR_PROTOCOL, "no ProxyConfig in it");
	if (found < 0 || (found > 0 && read_config(&a, config, e))) {
		free(a.pem);
		return NULL;
	}
	return a.pem;
}
