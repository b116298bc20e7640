/* config_fuzz.c - any bytes as agentd.yaml and as flags (behind the first NUL, with NULs between).
 *
 * What is accepted keeps to its bounds, has control planes of distinct names and addresses, and,
 * written out as a file again, is read as the same.  What is refused says why in printable ASCII
 * and leaves nothing behind.
 */
#include "common/err.h"
#include "common/mem.h"
#include "mesh/identity.h"
#include "worker/config/config.h"

#include <event2/buffer.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FLAGS_MAX = 6, TEXT_MAX = 253, YEAR = 365 * 24 * 3600 };

static void must(bool held)
{
	if (!held)
		abort();
}

static void in_range(int64_t n, int64_t min, int64_t max)
{
	must(n >= min && n <= max);
}

/* One word; "" where nothing is as good as something. */
static void is_word(const char *s)
{
	must(s && strlen(s) <= TEXT_MAX);
	for (; *s; s++)
		must(*s > ' ' && *s <= '~');
}

static void is_one_of(const char *s, const char *a, const char *b)
{
	must(!strcmp(s, a) || !strcmp(s, b));
}

static void check_plane(const struct config *c, size_t i)
{
	const struct istiod_options *o = &c->planes[i];
	const char *colon = strrchr(o->address, ':');

	must(identity_valid_ns(o->name) && *o->server_name);
	is_word(o->root);
	is_word(o->server_name);
	is_word(o->trust_domain);
	is_word(o->cluster_id);
	is_word(o->mesh_id);
	must(colon && colon > o->address);
	in_range(strtol(colon + 1, NULL, 10), 1, 65535);
	in_range(o->connections, 1, 16);
	in_range(o->opens_per_second, 1, 1000);
	in_range(o->opens_burst, 1, 1000);
	in_range(o->pod_opens_per_second, 1, 1000);
	in_range(o->pod_opens_burst, 1, 1000);
	in_range(o->unread_stream_s, 1, 3600);
	in_range(o->hold_empty_push_s, 0, 3600);
	for (size_t j = 0; j < i; j++)
		must(strcmp(c->planes[j].name, o->name) != 0 &&
		     strcmp(c->planes[j].address, o->address) != 0);
}

static void check(const struct config *c)
{
	must(*c->log_level);
	is_word(c->log_level);
	is_word(c->node_name);
	must(strspn(c->host_ip, "0123456789abcdefABCDEF.:") == strlen(c->host_ip));
	must(identity_valid_ns(c->istio_namespace) && identity_valid_sa(c->cluster_domain));
	is_one_of(c->ip_family, "ipv4", "ipv6");
	is_one_of(c->certificate_scope, "service-account", "pod");
	in_range(c->secret_ttl_min_s, 1, c->secret_ttl_max_s);
	in_range(c->secret_ttl_max_s, 1, YEAR);
	in_range(c->certificate_reissue_min_s, 1, 24 * 3600);
	in_range(c->certificate_linger_s, 0, 24 * 3600);
	in_range(c->csr_per_second, 1, 100);
	in_range(c->publish_wait_ms, 0, 60000);
	in_range(c->push_memory_mib, 8, 65536);
	in_range((int64_t)c->nplanes, 1, 16);
	for (size_t i = 0; i < c->nplanes; i++)
		check_plane(c, i);
}

static void put_text(struct evbuffer *out, const char *key, const char *value)
{
	evbuffer_add_printf(out, "%s: '", key);
	for (; *value; value++)
		evbuffer_add(out, "''", *value == '\'' ? 2 : (evbuffer_add(out, value, 1), 0));
	evbuffer_add(out, "'\n", 2);
}

static void put_number(struct evbuffer *out, const char *key, int64_t value)
{
	evbuffer_add_printf(out, "%s: %lld\n", key, (long long)value);
}

static void put_plane(struct evbuffer *out, const struct istiod_options *o)
{
	put_text(out, "- name", o->name);
	put_text(out, "  address", o->address);
	put_text(out, "  root", o->root);
	put_text(out, "  server_name", o->server_name);
	put_text(out, "  trust_domain", o->trust_domain);
	put_text(out, "  cluster_id", o->cluster_id);
	put_text(out, "  mesh_id", o->mesh_id);
	put_number(out, "  connections", o->connections);
	put_number(out, "  opens_per_second", o->opens_per_second);
	put_number(out, "  opens_burst", o->opens_burst);
	put_number(out, "  pod_opens_per_second", o->pod_opens_per_second);
	put_number(out, "  pod_opens_burst", o->pod_opens_burst);
	put_number(out, "  unread_stream_s", o->unread_stream_s);
	put_number(out, "  hold_empty_push_s", o->hold_empty_push_s);
}

/* The file that says what `c` says (but for `check`, which only a flag says). */
static struct evbuffer *written(const struct config *c)
{
	struct evbuffer *out = evbuffer_new();

	put_text(out, "log_level", c->log_level);
	put_text(out, "log_json", c->log_json ? "true" : "false");
	put_text(out, "node_name", c->node_name);
	put_text(out, "host_ip", c->host_ip);
	put_text(out, "istio_namespace", c->istio_namespace);
	put_text(out, "cluster_domain", c->cluster_domain);
	put_text(out, "ip_family", c->ip_family);
	put_text(out, "certificate_scope", c->certificate_scope);
	put_number(out, "secret_ttl_min_s", c->secret_ttl_min_s);
	put_number(out, "secret_ttl_max_s", c->secret_ttl_max_s);
	put_number(out, "certificate_reissue_min_s", c->certificate_reissue_min_s);
	put_number(out, "certificate_linger_s", c->certificate_linger_s);
	put_number(out, "csr_per_second", c->csr_per_second);
	put_number(out, "publish_wait_ms", c->publish_wait_ms);
	evbuffer_add_printf(out, "control_planes:\n");
	for (size_t i = 0; i < c->nplanes; i++)
		put_plane(out, &c->planes[i]);
	return out;
}

static void check_again(const struct config *c)
{
	struct evbuffer *first = written(c), *second;
	size_t len = evbuffer_get_length(first);
	const char *text = (const char *)evbuffer_pullup(first, -1);
	char *no_flags[] = {"agentd-worker", NULL};
	struct config again;
	struct err e;

	must(!config_load(&again, &(struct config_file){"again", text, len}, 1, no_flags, &e));
	second = written(&again);
	must(evbuffer_get_length(second) == len && !memcmp(evbuffer_pullup(second, -1), text, len));
	evbuffer_free(first);
	evbuffer_free(second);
	config_clear(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = mem_zalloc(size + 1);
	char *argv[FLAGS_MAX + 2] = {"agentd-worker"};
	struct err e = {0};
	struct config c;
	size_t len;
	int argc = 1;

	memcpy(text, data, size);
	len = strlen(text);
	for (char *at = text + len + 1; at < text + size && argc <= FLAGS_MAX; at += strlen(at) + 1)
		argv[argc++] = at;
	if (!config_load(&c, &(struct config_file){"agentd.yaml", text, len}, argc, argv, &e)) {
		check(&c);
		check_again(&c);
	} else {
		must(e.code == ERR_INVALID && *e.msg && !c.log_level && !c.planes && !c.nplanes);
		for (const char *s = e.msg; *s; s++)
			must(*s >= ' ' && *s <= '~');
	}
	config_clear(&c);
	return 0;
}
