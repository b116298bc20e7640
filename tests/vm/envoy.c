/* envoy.c - the same with a real Envoy: original_dst listeners, clusters to where was dialled.
 *
 * That a connection passed it shows at both ends: outbound by its access log, inbound by the source
 * that the app sees, 127.0.0.6 or ::6.
 */
#include "checks.h"
#include "common/err.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct who app = {APP, APP}, envoy = {ENVOY, ENVOY}, root = {0, 0};
static const char *const passthrough[2] = {"127.0.0.6", "::6"};

/* %1$s: where files are. */
static const char config[] =
    "static_resources:\n"
    "  listeners:\n"
    "  - name: out\n"
    "    address: &out {socket_address: {address: '::', ipv4_compat: true, port_value: 15001}}\n"
    "    listener_filters: &original\n"
    "    - name: original_dst\n"
    "      typed_config:\n"
    "        '@type': "
    "type.googleapis.com/envoy.extensions.filters.listener.original_dst.v3.OriginalDst\n"
    "    filter_chains:\n"
    "    - filters:\n"
    "      - name: tcp\n"
    "        typed_config:\n"
    "          '@type': "
    "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\n"
    "          stat_prefix: out\n"
    "          cluster: out\n"
    "          access_log:\n"
    "          - name: file\n"
    "            typed_config:\n"
    "              '@type': "
    "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog\n"
    "              path: %1$s/access.log\n"
    "              log_format: {text_format_source: {inline_string: "
    "\"%%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%% %%DOWNSTREAM_LOCAL_ADDRESS%%\\n\"}}\n"
    "  - name: in\n"
    "    address: {socket_address: {address: '::', ipv4_compat: true, port_value: 15006}}\n"
    "    listener_filters: *original\n"
    "    filter_chains:\n"
    "    - filters:\n"
    "      - name: tcp\n"
    "        typed_config:\n"
    "          '@type': "
    "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\n"
    "          stat_prefix: in\n"
    "          cluster: in\n"
    "  clusters:\n"
    "  - {name: out, type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED, connect_timeout: 2s}\n"
    "  - name: in\n"
    "    type: ORIGINAL_DST\n"
    "    lb_policy: CLUSTER_PROVIDED\n"
    "    connect_timeout: 2s\n"
    "    upstream_bind_config:\n"
    "      source_address: {address: 127.0.0.6, port_value: 0}\n"
    "      extra_source_addresses: [{address: {address: '::6', port_value: 0}}]\n";

struct there {
	const char *path, *dir;
};

static void write_config(const struct world *w)
{
	char path[2 * TEXT];
	FILE *f;

	snprintf(path, sizeof(path), "%s/envoy.yaml", w->dir);
	f = fopen(path, "we");
	if (!f || fprintf(f, config, w->dir) < 0 || fclose(f))
		broken(path);
	chmod(w->dir, 0777); // NOLINT: Envoy's own files go there
}

static void run_envoy(void *ctx, int ready)
{
	const struct there *t = ctx;
	char file[2 * TEXT], log[2 * TEXT];

	snprintf(file, sizeof(file), "%s/envoy.yaml", t->dir);
	snprintf(log, sizeof(log), "%s/envoy.log", t->dir);
	char *const argv[] = {"envoy", "-c", file, "--log-path", log, "--disable-hot-restart",
	    "--concurrency", "2", "--file-flush-interval-msec", "50", NULL};
	if (write(ready, ".", 1) == 1)
		execv(t->path, argv);
}

static pid_t start(const struct world *w, const char *path)
{
	struct there t = {path, w->dir};
	pid_t child = settle(&w->pod, envoy, run_envoy, &t);
	struct seen s = {.error = ECONNREFUSED};

	for (int tries = 0; s.error && tries < 600; tries++) {
		usleep(100000);
		s = dial(&w->pod, app, TO(peer_ip[0], 80));
	}
	check(s.error == 0, "Envoy starts", "%s", strerror(s.error));
	return child;
}

/* Lines of its access log that name this source and destination. */
static int logged(const struct world *w, const char *line)
{
	char path[2 * TEXT], have[256];
	int n = 0;
	FILE *f;

	usleep(400000);
	snprintf(path, sizeof(path), "%s/access.log", w->dir);
	f = fopen(path, "re");
	while (f && fgets(have, sizeof(have), f))
		n += !strncmp(have, line, strlen(line));
	if (f)
		fclose(f);
	return n;
}

static void check_ways(const struct world *w)
{
	char line[2 * TEXT];

	for (int v6 = 0; v6 < 2; v6++) {
		const struct dial out = *TO(peer_ip[v6], 80), in = *TO(pod_ip[v6], 8080);
		snprintf(
		    line, sizeof(line), v6 ? "%s [%s]:80" : "%s %s:80", pod_ip[v6], peer_ip[v6]);
		int before = logged(w, line);
		struct seen s = dial(&w->pod, app, &out);
		check(!s.error && s.port == 80 && !strcmp(s.peername, out.to), "outbound", "%s",
		    strerror(s.error));
		check(logged(w, line) == before + 1, "outbound: in Envoy's log", "%s", line);
		s = dial(&w->peer, root, &in);
		check(!s.error && s.port == 8080 && !strcmp(s.peer, passthrough[v6]), "inbound",
		    "%s, from %s", strerror(s.error), s.peer);
		s = dial(&w->pod, envoy, &in);
		check(!s.error && s.port == 8080 && !strcmp(s.peer, passthrough[v6]),
		    "Envoy's user to its own pod", "%s, from %s", strerror(s.error), s.peer);
		s = dial(&w->pod, app, &in);
		check(!s.error && s.port == 8080 && !strcmp(s.peer, pod_ip[v6]),
		    "app to its own pod", "%s, from %s", strerror(s.error), s.peer);
	}
}

static void check_load(const struct world *w, struct loader *l)
{
	struct tally *going = tally_new(), *coming = tally_new();
	const uint64_t before = counter(w, REDIRECT_TO_OUTBOUND);
	struct load out[2], in[2];
	struct err why;
	pid_t children[2][2];

	for (int v6 = 0; v6 < 2; v6++) {
		out[v6] = (struct load){LONG(peer_ip[v6], 80), 80, going};
		in[v6] = (struct load){LONG(pod_ip[v6], 8080), 8080, coming};
		children[v6][0] = load(&w->pod, app, &out[v6]);
		children[v6][1] = load(&w->peer, root, &in[v6]);
	}
	for (int i = 0; i < 2; i++) {
		loader_end(l);
		check(!loader_start(l, w, LOADER_CAPS, RLIM, &why),
		    "all programs replaced under load", "%s", why.msg);
		usleep(1000000);
	}
	for (int i = 0; i < 4; i++)
		evict(&children[i / 2][i % 2]);
	check_tally(going, 0, "under load: outbound");
	check_tally(coming, 0, "under load: inbound");
	check(counter(w, REDIRECT_TO_OUTBOUND) - before >= going->good,
	    "under load: all were redirected", "%llu",
	    (unsigned long long)(counter(w, REDIRECT_TO_OUTBOUND) - before));
	check(counter(w, REDIRECT_LOST_DESTINATION) == 0 && map_count(w, "tuples") == 0,
	    "under load: every destination known", "%d tuples left", map_count(w, "tuples"));
}

void check_envoy(const struct world *w, const char *path)
{
	struct redirect_rules rules = default_rules();
	struct err why = {.code = 0};
	struct loader l;
	pid_t child;

	part("real Envoy");
	write_config(w);
	check(!loader_start(&l, w, LOADER_CAPS, RLIM, &why) && !loader_set(&l, &rules, &why) &&
		  !loader_live(&l, &why),
	    "load, rules, live", "%s", why.msg);
	child = start(w, path);
	check_ways(w);
	check_load(w, &l);
	evict(&child);
	struct seen out = dial(&w->pod, app, TO(peer_ip[0], 80));
	struct seen in = dial(&w->peer, root, TO(pod_ip[0], 8080));
	check(out.error == ECONNREFUSED && in.error == ECONNREFUSED,
	    "Envoy is gone: refused both ways", "%s, %s", strerror(out.error), strerror(in.error));
	loader_end(&l);
}
