/* options.c - see options.h. */
#include "options.h"
#include "common/err.h"
#include "common/nearest.h"
#include "kube/client.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct row {
	const char *name, *value; /* what --help calls it; NULL: a switch */
	size_t offset;
	const char *help; /* NULL: for tests alone */
} rows[] = {
    {"listen", "ADDR:PORT", offsetof(struct options, listen),
	"where API servers ask (default [::]:15017)"},
    {"config", "FILE", offsetof(struct options, config), "{values, meshConfig, agentd}; followed"},
    {"values", "FILE", offsetof(struct options, values),
	"istiod's values alone, as its injector has them; followed"},
    {"mesh", "FILE", offsetof(struct options, mesh), "istiod's mesh configuration alone; followed"},
    {"tls-cert", "FILE", offsetof(struct options, tls_cert),
	"certificate chain in PEM, the server's first; followed"},
    {"tls-key", "FILE", offsetof(struct options, tls_key), "its private key in PEM; followed"},
    {"client-ca", "FILE", offsetof(struct options, client_ca),
	"CAs in PEM: a caller must show a certificate of one; followed"},
    {"server-name", "NAME", offsetof(struct options, server_name),
	"SERVICE.NAMESPACE.svc: a certificate that is not for it is refused"},
    {"secret", "NAME", offsetof(struct options, secret),
	"instead of the files: certificates of a CA that is kept in this Secret"},
    {"webhook", "NAME", offsetof(struct options, webhook),
	"MutatingWebhookConfiguration whose caBundles get that CA"},
    {"kube-dir", "DIR", offsetof(struct options, kube_dir),
	"where token, ca.crt and namespace are (default " KUBE_DIR ")"},
    {"look-ms", "N", offsetof(struct options, look_ms), NULL},
    {"log-level", "SPEC", offsetof(struct options, log_level),
	"info, or server:debug,review:debug (default info)"},
    {"log-json", NULL, offsetof(struct options, log_json), "a line of the log is JSON"},
    {"help", NULL, offsetof(struct options, help), "this text"},
    {"version", NULL, offsetof(struct options, version), "version of agentd-injector"},
};
enum { ROWS = sizeof(rows) / sizeof(*rows) };

void options_help(FILE *out)
{
	char left[32];

	fprintf(out,
	    "usage: agentd-injector --config FILE --tls-cert FILE --tls-key FILE [FLAG...]\n\n");
	for (unsigned i = 0; i < ROWS; i++) {
		if (!rows[i].help)
			continue;
		snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].value ? " " : "",
		    rows[i].value ? rows[i].value : "");
		fprintf(out, "  %-20s %s\n", left, rows[i].help);
	}
}

static int check(const struct options *o, struct err *e)
{
	if (!o->tls_cert != !o->tls_key)
		return err_set(e, ERR_INVALID, "--tls-cert and --tls-key: both or neither");
	if (!o->secret != !o->webhook || (o->secret && !o->server_name))
		return err_set(
		    e, ERR_INVALID, "--secret, --webhook and --server-name: all of them or none");
	if (!o->secret == !o->tls_cert)
		return err_set(e, ERR_INVALID,
		    "--tls-cert and --tls-key, or --secret, --webhook and --server-name: one way "
		    "to a certificate");
	if (!o->config && !o->values)
		return err_set(
		    e, ERR_INVALID, "--config or --values: one says where Envoy's image is");
	return 0;
}

static const struct row *row_of(const char *argument, size_t length)
{
	for (unsigned i = 0; i < ROWS; i++)
		if (!strncmp(argument, "--", 2) && strlen(rows[i].name) == length - 2 &&
		    !strncmp(rows[i].name, argument + 2, length - 2))
			return &rows[i];
	return NULL;
}

static int refuse(const char *argument, size_t length, struct err *e)
{
	char shown[80];
	struct nearest n = {.wanted = shown};

	err_printable(shown, sizeof(shown), argument, (unsigned)length);
	n.wanted += strspn(shown, "-");
	for (unsigned i = 0; i < ROWS; i++)
		if (rows[i].help)
			nearest_consider(&n, rows[i].name);
	return err_set(e, ERR_INVALID, "%s: no such flag; nearest: --%s", shown, n.name);
}

/* How many arguments it takes. */
static int read_one(struct options *o, char **argv, struct err *e)
{
	size_t length = strcspn(argv[0], "=");
	const char *value = argv[0][length] ? argv[0] + length + 1 : NULL;
	const struct row *r = row_of(argv[0], length);
	void *to = r ? (char *)o + r->offset : NULL;
	int used = 1;

	if (!r)
		return refuse(argv[0], length, e);
	if (!r->value && value)
		return err_set(e, ERR_INVALID, "--%s takes no value", r->name);
	if (r->value && !value) {
		if (!(value = argv[1]))
			return err_set(e, ERR_INVALID, "--%s needs a value: %s", r->name, r->value);
		used = 2;
	}
	if (r->value)
		*(const char **)to = value;
	else
		*(bool *)to = true;
	return used;
}

int options_read(struct options *o, int argc, char **argv, struct err *e)
{
	*o = (struct options){.listen = "[::]:15017", .log_level = "info", .kube_dir = KUBE_DIR};
	for (int i = 1, used; i < argc; i += used)
		if ((used = read_one(o, argv + i, e)) < 0)
			return -1;
	return o->help || o->version ? 0 : check(o, e);
}
