/* options.c - see options.h. */
#include "options.h"
#include "common/err.h"
#include "kube/client.h"
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct row {
	const char *name, *value;
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
};
enum { ROWS = sizeof(rows) / sizeof(*rows), JSON = ROWS, HELP, VERSION, ALL };

void options_help(FILE *out)
{
	char left[32];

	fprintf(out,
	    "usage: agentd-injector --config FILE --tls-cert FILE --tls-key FILE [FLAG...]\n\n");
	for (unsigned i = 0; i < ROWS; i++) {
		if (!rows[i].help)
			continue;
		snprintf(left, sizeof(left), "--%s %s", rows[i].name, rows[i].value);
		fprintf(out, "  %-20s %s\n", left, rows[i].help);
	}
	fprintf(out, "  %-20s %s\n  %-20s %s\n  %-20s %s\n", "--log-json",
	    "a line of the log is JSON", "--help", "this text", "--version",
	    "version of agentd-injector");
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

int options_read(struct options *o, int argc, char **argv, struct err *e)
{
	struct option all[ALL + 1] = {0};
	int at;

	*o = (struct options){.listen = "[::]:15017", .log_level = "info", .kube_dir = KUBE_DIR};
	for (int i = 0; i < ROWS; i++)
		all[i] = (struct option){rows[i].name, required_argument, NULL, i};
	all[JSON] = (struct option){"log-json", no_argument, NULL, JSON};
	all[HELP] = (struct option){"help", no_argument, NULL, HELP};
	all[VERSION] = (struct option){"version", no_argument, NULL, VERSION};
	opterr = 0;
	optind = 0; /* of the start */
	while ((at = getopt_long(argc, argv, "+", all, NULL)) >= 0) {
		if (at == '?' || at == ':')
			return err_set(e, ERR_INVALID, "%s: no such flag, or it wants a value",
			    argv[optind - 1]);
		if (at < ROWS)
			*(const char **)(void *)((char *)o + rows[at].offset) = optarg;
		o->log_json |= at == JSON;
		o->help |= at == HELP;
		o->version |= at == VERSION;
	}
	if (optind < argc)
		return err_set(e, ERR_INVALID, "%s: unexpected argument", argv[optind]);
	return o->help || o->version ? 0 : check(o, e);
}
