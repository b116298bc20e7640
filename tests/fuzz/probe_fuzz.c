/* probe_fuzz.c - any text as a machine's ProxyConfig, for its readinessProbe, and the bootstrap
 * that comes of it.
 *
 * Whatever was accepted: times and thresholds are within their bounds, one prober has the probe's
 * route, its port is the app's, and the headers are whole lines of printable ASCII that frame
 * nothing.
 * LINK: tests/fuzz/node_rig.c
 */
#include "mesh/targets.h"
#include "node_rig.h"
#include <stdint.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_headers(const char *headers)
{
	for (const char *line = headers; *line;) {
		const char *end = strstr(line, "\r\n");

		must(end && memchr(line, ':', (size_t)(end - line)));
		must(strncasecmp(line, "content-length:", 15) != 0);
		must(strncasecmp(line, "transfer-encoding:", 18) != 0);
		for (; line < end; line++)
			must(*line >= ' ' && *line <= '~');
		line = end + 2;
	}
}

static void check_prober(json_t *probers)
{
	unsigned routes = 0;
	json_t *v;
	size_t i;

	json_array_foreach (probers, i, v) {
		json_int_t port = json_integer_value(at(v, "port"));

		must(port >= 1 && port <= 65535 && !targets_port_is_reserved((unsigned)port));
		routes += !strcmp(json_string_value(at(v, "route")), PROBE_ASKED_ROUTE);
	}
	must(routes == 1);
}

static void check(const struct node *n)
{
	const struct node_settings *s = node_settings(n);
	const struct probe_asked *p = &s->probe;
	size_t len;
	char *text;
	json_t *b;

	if (!p->given)
		return;
	must(p->delay_s <= 3600 && p->period_s >= 1 && p->period_s <= 3600);
	must(p->timeout_s >= 1 && p->timeout_s <= 60);
	must(p->successes >= 1 && p->successes <= 100);
	must(p->failures >= 1 && p->failures <= 100);
	check_headers(p->headers);
	check_prober(s->probers);
	text = bootstrap_render(n, &len);
	b = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	must(b != NULL);
	json_decref(b);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *text = json_stringn((const char *)data, size), *env;
	struct err e = {0};
	struct node *n;

	if (!text)
		return 0;
	env = json_pack("{s:o}", "PROXY_CONFIG", text);
	n = rig_machine(env, &e);
	if (n)
		check(n);
	node_free(&n);
	json_decref(env);
	return 0;
}
