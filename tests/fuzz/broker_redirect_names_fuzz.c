/* broker_redirect_names_fuzz.c - any bytes as the names that a worker tells: refused, or the map of
 * pods has the pods that were told and no others.
 *
 * The input lies over a file of zeroes, from the front.
 * SOAK: 1000000 runs
 */
#include "broker/redirect/dns.c" /* in maps that are here */
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SOCKETS, NAMES, NAMES_OF, MAPS, EARLIER = 2, ROOM = EARLIER + REDIRECT_PODS_MAX };

static char maps[MAPS];
static struct redirect_bpf bpf = {.maps = {.sockets = (void *)&maps[SOCKETS],
				      .names = (void *)&maps[NAMES],
				      .names_of = (void *)&maps[NAMES_OF]}};
static struct redirect_names_told told;
static uint8_t kept[ROOM][16]; /* keys of the map of pods, in its order */
static int nkept, nsets;

static void must(bool held)
{
	if (!held)
		abort();
}

int bpf_map__fd(const struct bpf_map *map)
{
	return (int)((const char *)map - maps);
}

static int find(const uint8_t pod[16])
{
	int i = 0;

	while (i < nkept && memcmp(kept[i], pod, 16) != 0)
		i++;
	return i;
}

int bpf_map_get_next_key(int map, const void *key, void *next)
{
	int i = key ? find(key) + 1 : 0;

	must(map == NAMES_OF && i <= nkept);
	if (i == nkept)
		return -1;
	memcpy(next, kept[i], 16);
	return 0;
}

int bpf_map_delete_elem(int map, const void *key)
{
	int i = find(key);

	must(map == NAMES_OF && i < nkept);
	memmove(kept[i], kept[i + 1], (size_t)(--nkept - i) * 16);
	return 0;
}

int bpf_map_update_elem(int map, const void *key, const void *value, __u64 flags)
{
	must(flags == BPF_ANY);
	if (map == NAMES) {
		must(value == &told.names && !nsets++);
		return 0;
	}
	must(map == NAMES_OF && nsets);
	int i = find(key);
	must(i < ROOM);
	memcpy(kept[i], key, 16);
	nkept += i == nkept;
	return 0;
}

/* Of the rest of dns.c. */
uint32_t ebpf_index(const struct redirect *r, const struct uuid *pod)
{
	(void)r, (void)pod;
	return 0;
}

struct redirect_pod_state *ebpf_pod_find(const struct redirect *r, const struct uuid *uid)
{
	(void)r, (void)uid;
	return NULL;
}

int ebpf_pod_put(struct redirect *r, const struct redirect_pod_state *p, struct err *e)
{
	(void)r, (void)p, (void)e;
	return -1;
}

static void check_kept(void)
{
	for (uint64_t i = 0; i < told.npods; i++)
		must(find(told.pods[i].pod) < nkept);
	for (int i = 0; i < nkept; i++)
		must(is_told(&told, kept[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct redirect r = {.bpf = &bpf};
	struct err e = {.code = 0};

	if (size > sizeof(told))
		return 0;
	memset(&told, 0, offsetof(struct redirect_names_told, names));
	memcpy(&told, data, size);
	memset(kept, 1, 16);
	memset(kept[1], 2, 16);
	nkept = EARLIER;
	nsets = 0;
	if (redirect_names_put(&r, &told, &e)) {
		must(e.code == EINVAL && *e.msg && told.npods > REDIRECT_PODS_MAX);
		must(nkept == EARLIER && !nsets);
		return 0;
	}
	must(nsets == 1);
	check_kept();
	return 0;
}
