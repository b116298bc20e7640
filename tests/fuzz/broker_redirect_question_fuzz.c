/* broker_redirect_question_fuzz.c - any bytes as a worker's question about a pod's traffic: the
 * answer is a verdict, or says why there is none.
 *
 * The input lies over a question and a pod that are good, from the front.
 * SOAK: 10000000 runs
 */
#include "broker/redirect/explain.c" /* its look-ups, in maps that are here */
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PODS, PORTS, CIDRS, MAPS, INDEX = 7 };
enum { KNOWN = 1, RULES = 2, STRICT = 4, LIVE = 8, SEEN = 16, LISTENS = 32, PROBED = 64 };

static struct input {
	struct redirect_question q;
	uint32_t is;
	uint8_t listed;  /* bits: kinds of ports that the pod has */
	uint8_t cidr[2]; /* flags of even addresses, of odd ones */
	struct redirect_pod pod;
} in;
static const struct input good = {.q.flow.protocol = RULES_TCP,
    .is = KNOWN | RULES | STRICT | LIVE | LISTENS,
    .pod = {.flags = REDIRECT_OUTBOUND_ALL | REDIRECT_INBOUND_ALL | REDIRECT_DNS,
	.proxy_uid = 1337,
	.proxy_gid = 1337,
	.tunnel_port = 15008}};

static char maps[MAPS];
static struct redirect_bpf bpf = {.maps = {.pods_by_index = (void *)&maps[PODS],
				      .ports = (void *)&maps[PORTS],
				      .cidrs = (void *)&maps[CIDRS]}};
static struct redirect_pod_state state;

static void must(bool held)
{
	if (!held)
		abort();
}

int bpf_map__fd(const struct bpf_map *map)
{
	return (int)((const char *)map - maps);
}

static int find_port(const struct redirect_port_key *k)
{
	must(k->index == INDEX && k->kind && k->kind <= REDIRECT_PORT_PROBE);
	return in.listed >> k->kind & 1 ? 0 : -1;
}

static int find_cidr(const struct redirect_cidr_key *k, void *flags)
{
	const uint32_t found = in.cidr[k->address.word[3] & 1];

	must(k->index == INDEX && k->prefix == REDIRECT_CIDR_BITS + 128);
	memcpy(flags, &found, sizeof(found));
	return found ? 0 : -1;
}

int bpf_map_lookup_elem(int map, const void *key, void *value)
{
	if (map == PORTS)
		return find_port(key);
	if (map == CIDRS)
		return find_cidr(key, value);
	must(map == PODS && *(const uint32_t *)key == INDEX);
	memcpy(value, &in.pod, sizeof(in.pod));
	return 0;
}

uint32_t ebpf_index(const struct redirect *r, const struct uuid *pod)
{
	(void)r, (void)pod;
	return in.is & KNOWN ? INDEX : 0;
}

struct redirect_pod_state *ebpf_pod_find(const struct redirect *r, const struct uuid *uid)
{
	(void)r, (void)uid;
	return in.is & KNOWN ? &state : NULL;
}

struct redirect_pod_state *ebpf_pod_at(const struct redirect *r, uint32_t index)
{
	(void)r;
	must(index == INDEX);
	return &state;
}

bool ebpf_listeners_known(const struct redirect *r, uint32_t index)
{
	(void)r;
	must(index == INDEX);
	return in.is & LISTENS;
}

static void check_verdict(int v, const struct redirect_question *answered)
{
	must(v < REDIRECT_VERDICTS);
	must(!answered->inbound || in.q.inbound);
	must(v != REDIRECT_PASS_PROBE || (answered->inbound && in.q.probe && in.is & PROBED));
	must(v != REDIRECT_TO_INBOUND || !state.rules || state.steered == REDIRECT_STEERED_LIVE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct redirect_rules rules;
	static struct redirect_seen seen;
	static struct redirect r;
	const struct uuid pod = {.bytes = {1}};
	struct redirect_question q;
	struct err e = {.code = 0};

	in = good;
	for (size_t i = 0; i < size && i < sizeof(in); i++)
		((uint8_t *)&in)[i] ^= data[i];
	in.pod.index = INDEX; /* the broker's own */
	rules.strict = !!(in.is & STRICT);
	state = (struct redirect_pod_state){.rules = in.is & RULES ? &rules : NULL,
	    .seen = in.is & SEEN ? &seen : NULL,
	    .steered = in.is & LIVE ? REDIRECT_STEERED_LIVE : REDIRECT_STEERED_NONE,
	    .answers_udp = in.listed & 1};
	r.bpf = &bpf;
	r.probes.said.trees[0].id = in.is & PROBED;
	q = in.q;
	int v = redirect_explain(&r, &pod, &q, &e);
	if (v < 0)
		must(v == -1 && e.code && *e.msg);
	else
		check_verdict(v, &q);
	return 0;
}
