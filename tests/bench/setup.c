/* setup.c - what a pod takes the broker that redirects it: setup BPFFS MANIFESTS CGROUP
 *
 * BPFFS is a mount of nobody else's, MANIFESTS an empty directory, CGROUP one below the root of
 * cgroup v2.  Prints what the start took; then, for each number in the input, makes so many more
 * pods redirected and prints what they took; at its end, what removing them took.  Each has a
 * cgroup and a network namespace of its own, and the rules that injection gives without
 * annotations.  Lines of JSON, microseconds.
 */
#include "border/rules.h"
#include "broker/base/fdstore.h"
#include "broker/base/state.h"
#include "broker/pods/cgroup.h"
#include "broker/pods/pods.h"
#include "broker/redirect/live.h"
#include "broker/redirect/traffic.h"
#include "common/err.h"
#include "common/mem.h"
#include "times.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PODS_MAX = 500 };

static const struct redirect_rules rules = {.version = REDIRECT_RULES_VERSION,
    .flags = REDIRECT_OUTBOUND_ALL | REDIRECT_INBOUND_ALL,
    .proxy_uid = 1337,
    .proxy_gid = 1337,
    .outbound_port = 15001,
    .inbound_port = 15006,
    .tunnel_port = 15008,
    .dns_port = 15053,
    .strict = 1,
    .nrows = 3,
    .rows = {{REDIRECT_PORT_INBOUND_EXCLUDE, 15020}, {REDIRECT_PORT_INBOUND_EXCLUDE, 15021},
	{REDIRECT_PORT_INBOUND_EXCLUDE, 15090}}};

static struct pod {
	struct uuid uid;
	char cgroup[PATH_MAX + 300];
	int netns;
} pods[PODS_MAX];
static size_t npods;
static char root[PATH_MAX];

static struct broker_options options = {
    .redirect = true, .redirect_allow = "strict", .worker_user = "1338", .max_pods = PODS_MAX};
static struct broker_fdstore *kept;
static struct netns_home home;
static struct broker_states *states;
static struct pods *known;
static struct redirect_traffic *traffic;
static struct err why;

static void check(int rc)
{
	if (rc < 0)
		die(why.msg);
}

static void on_changed(void *ctx)
{
	(void)ctx;
}

/* lo, up, with an address that is no loopback one: as much of a pod as the broker looks at. */
static void configure(size_t n)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP}, address = {.ifr_name = "lo:1"};
	struct sockaddr_in *a = (struct sockaddr_in *)&address.ifr_addr;

	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(0x0a090000 + (uint32_t)n + 1);
	if (ioctl(s, SIOCSIFFLAGS, &lo) || ioctl(s, SIOCSIFADDR, &address))
		die("lo");
	close(s);
}

static void make(struct pod *p, size_t n)
{
	char uid[UUID_TEXT_SIZE], path[400];
	FILE *f;

	p->uid.bytes[0] = (uint8_t)(n >> 8);
	p->uid.bytes[15] = (uint8_t)n;
	uuid_format(&p->uid, uid);
	snprintf(p->cgroup, sizeof(p->cgroup), "%s/%s/pod%zu", root, options.redirect_cgroup, n);
	snprintf(path, sizeof(path), "%s/%s", options.manifests, uid);
	if (mkdir(p->cgroup, 0755) || mkdir(path, 0700))
		die(p->cgroup);
	strcat(path, "/cgroup");
	f = fopen(path, "w");
	if (!f || fprintf(f, "%s/pod%zu\n", options.redirect_cgroup, n) < 0 || fclose(f))
		die(path);
	if (unshare(CLONE_NEWNET) || (p->netns = open("/proc/self/ns/net", O_RDONLY)) < 0)
		die("network namespace");
	configure(n);
	if (setns(home.fd, CLONE_NEWNET))
		die("setns");
	check(pods_add(known, &p->uid, false, &why));
}

/* From the request to the answer. */
static void ask(const struct pod *p, uint32_t id)
{
	const struct link_request r = {.id = id, .op = LINK_REDIRECT_SET, .uid = p->uid};
	struct link_packet answer;
	int memfd = memfd_create("rules", MFD_ALLOW_SEALING), fd;

	if (write(memfd, &rules, sizeof(rules)) != sizeof(rules) ||
	    fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW))
		die("memfd");
	check(redirect_traffic_set(traffic, pods_known(known, &p->uid), &r, memfd, &why));
	if (!redirect_traffic_next(traffic, &answer, &fd) || answer.code)
		die("the pod is not redirected");
	close(fd);
	close(memfd);
}

static long resident_kib(void)
{
	long kib = -1;
	char line[200];
	FILE *f = fopen("/proc/self/status", "r");

	while (f && kib < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "VmRSS: %ld", &kib);
	if (f)
		fclose(f);
	return kib;
}

static void print(const char *name, struct times *t)
{
	printf("\"%s\": [%.1f, %.1f]", name, (double)times_part(t, 0.50) / 1e3,
	    (double)times_part(t, 0.99) / 1e3);
	free(t->ns);
}

static void add(size_t n)
{
	struct times set = {0}, live = {0};
	int64_t start, between;

	for (; n > 0 && npods < PODS_MAX; n--) {
		struct pod *p = &pods[npods];

		make(p, npods++);
		start = now_ns(CLOCK_MONOTONIC);
		ask(p, (uint32_t)npods);
		between = now_ns(CLOCK_MONOTONIC);
		times_note(&set, between - start);
		pods_known(known, &p->uid)->identity.netns_fd = dup(p->netns);
		redirect_live_learned(pods_known(known, &p->uid));
		times_note(&live, now_ns(CLOCK_MONOTONIC) - between);
	}
	printf("{\"pods\": %zu, \"rss_kib\": %ld, ", npods, resident_kib());
	print("set", &set);
	printf(", ");
	print("live", &live);
	printf("}\n");
}

static void remove_all(void)
{
	struct times took = {0};

	for (size_t i = 0; i < npods; i++) {
		int64_t start = now_ns(CLOCK_MONOTONIC);

		redirect_traffic_remove(traffic, &pods[i].uid);
		times_note(&took, now_ns(CLOCK_MONOTONIC) - start);
		rmdir(pods[i].cgroup);
	}
	printf("{");
	print("remove", &took);
	printf("}\n");
}

/* <run> is where the manifests would be; what is mounted there goes with this process. */
static int make_run(void)
{
	char path[PATH_MAX];

	options.run = options.manifests;
	snprintf(path, sizeof(path), "%s/pods", options.run);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return err_sys(&why, "own mounts");
	return mkdir(path, 0700) && errno != EEXIST ? err_sys(&why, "mkdir %s", path) : 0;
}

int main(int argc, char **argv)
{
	int64_t start = now_ns(CLOCK_MONOTONIC);
	char line[32];

	if (argc != 4)
		die("setup BPFFS MANIFESTS CGROUP");
	setlinebuf(stdout);
	options.bpffs = argv[1];
	options.manifests = argv[2];
	options.redirect_cgroup = argv[3];
	if (pod_cgroup_root(&options, root))
		die("no cgroup v2");
	kept = broker_fdstore_new();
	check(netns_home_open(&home, kept, &why));

	check(make_run());
	const int epoll = epoll_create1(0);
	if (!(states = broker_state_new(&options, kept, &why)))
		die(why.msg);
	known = pods_new(&(struct pods_rig){epoll, &options, &home, kept, states, on_changed,
			     on_changed, NULL, NULL},
	    &why);
	const struct redirect_traffic_rig rig = {.epoll = epoll,
	    .options = &options,
	    .home = &home,
	    .pods = known,
	    .changed = on_changed};
	traffic = redirect_traffic_new(&rig, &why);
	if (!traffic)
		die(why.msg);
	printf("{\"start\": %.1f, \"rss_kib\": %ld}\n",
	    (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e3, resident_kib());
	while (fgets(line, sizeof(line), stdin))
		add((size_t)atoi(line));
	remove_all();
	pods_free(&known);
	redirect_traffic_free(&traffic);
	broker_state_free(&states);
	netns_home_close(&home);
	broker_fdstore_free(&kept);
	return 0;
}
