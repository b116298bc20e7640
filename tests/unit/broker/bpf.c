/* bpf.c - see bpf.h. */
#include "bpf.h"

const char *place_path(const struct place *p, const char *name)
{
	static char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", p->cgroup, name);
	return path;
}

int place_cgroup(const struct place *p, const char *name)
{
	const char *path = place_path(p, name);
	int fd;

	if (mkdir(path, 0755))
		assert_int_equal(errno, EEXIST);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

void place_setup(struct place *p)
{
	struct broker_options o = {.cgroup_root = NULL};
	char root[PATH_MAX];

	rig_own_mounts();
	memset(p, 0, sizeof(*p));
	strcpy(p->top, "/tmp/bpXXXXXX");
	assert_non_null(mkdtemp(p->top));
	snprintf(p->bpffs, sizeof(p->bpffs), "%s/bpf", p->top);
	assert_int_equal(mkdir(p->bpffs, 0700), 0);
	assert_int_equal(pod_cgroup_root(&o, root), 0);
	snprintf(p->root, sizeof(p->root), "%s", root);
	snprintf(p->cgroup, sizeof(p->cgroup), "%s/agentd-unit.%d", p->root, getpid());
	assert_int_equal(mkdir(p->cgroup, 0755), 0);
	p->at = (struct redirect_place){.bpffs = p->bpffs, .cgroup = p->cgroup};
}

void place_start(struct place *p)
{
	p->r = redirect_new(&p->at, &p->e);
	if (!p->r)
		fail_msg("%s", p->e.msg);
}

void place_restart(struct place *p)
{
	redirect_free(&p->r);
	place_start(p);
}

static int place_remove_directory(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)at;
	if (kind == FTW_DP)
		rmdir(path);
	return 0;
}

void place_empty(const struct place *p)
{
	int kill_all = open(place_path(p, "cgroup.kill"), O_WRONLY | O_CLOEXEC); /* 5.14 */
	int events = open(place_path(p, "cgroup.events"), O_RDONLY | O_CLOEXEC);
	struct pollfd notice = {.fd = events, .events = POLLPRI};
	char text[128];

	if (kill_all >= 0)
		assert_int_equal(write(kill_all, "1", 1), 1);
	close(kill_all);
	for (ssize_t n; (n = pread(events, text, sizeof(text) - 1, 0)) > 0;) {
		text[n] = '\0';
		if (strstr(text, "populated 0"))
			break;
		if (poll(&notice, 1, PLACE_PATIENCE_MS) != 1)
			fail_msg("somebody stays in %s", p->cgroup);
	}
	close(events);
	nftw(p->cgroup, place_remove_directory, 16, FTW_DEPTH | FTW_PHYS);
	assert_int_equal(access(p->cgroup, F_OK), -1);
}

void place_teardown(struct place *p)
{
	redirect_free(&p->r);
	umount2(p->bpffs, MNT_DETACH);
	rig_shell("rm -rf %s", p->top);
	place_empty(p);
}

int place_begin(void **state)
{
	static struct place p;

	place_setup(&p);
	place_start(&p);
	*state = &p;
	return 0;
}

int place_end(void **state)
{
	place_teardown(*state);
	return 0;
}

int place_pin(const struct place *p, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/agentd/v%d/%s", p->bpffs, REDIRECT_LAYOUT, name);
	return bpf_obj_get(path);
}

int place_rows(const struct place *p, const char *map)
{
	char name[64], key[64], next[64];
	int n = 0, fd;

	snprintf(name, sizeof(name), "map_%s", map);
	fd = place_pin(p, name);
	assert_true(fd >= 0);
	for (void *at = NULL; !bpf_map_get_next_key(fd, at, next); at = key, n++)
		memcpy(key, next, sizeof(key));
	close(fd);
	return n;
}

int place_names(const struct place *p, const char *below)
{
	char path[256];
	const struct dirent *entry;
	int n = 0;

	snprintf(path, sizeof(path), "%s/agentd/v%d/%s", p->bpffs, REDIRECT_LAYOUT, below);
	DIR *d = opendir(path);
	if (!d)
		return -1;
	while ((entry = readdir(d)))
		n += entry->d_name[0] != '.';
	closedir(d);
	return n;
}

int place_attached(int target, enum bpf_attach_type type, uint32_t ids[8])
{
	uint32_t n = 8, all[8] = {0};

	assert_int_equal(bpf_prog_query(target, type, 0, NULL, ids ? ids : all, &n), 0);
	return (int)n;
}

bool place_entry(const struct place *p, int cgroup, struct redirect_pod *out)
{
	int fd = place_pin(p, "map_pods"), rc;
	struct stat st;
	uint64_t id;

	assert_int_equal(fstat(cgroup, &st), 0);
	id = st.st_ino;
	rc = bpf_map_lookup_elem(fd, &id, out);
	close(fd);
	return !rc;
}

int place_netns(const char *commands)
{
	int pipes[2], status, fd;
	char path[64];
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNET) || (*commands && system(commands))) /* NOLINT */
			_exit(1);
		if (write(pipes[1], "x", 1) != 1)
			_exit(2);
		pause();
		_exit(0);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], path, 1), 1);
	close(pipes[0]);
	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return fd;
}

struct redirect_rules good_rules(void)
{
	return (struct redirect_rules){.version = REDIRECT_RULES_VERSION,
	    .flags = REDIRECT_OUTBOUND_ALL | REDIRECT_INBOUND_ALL,
	    .proxy_uid = 1337,
	    .proxy_gid = 1337,
	    .outbound_port = 15001,
	    .inbound_port = 15006,
	    .tunnel_port = 15008,
	    .dns_port = 15053,
	    .strict = 1,
	    .nrows = 2,
	    .rows = {{REDIRECT_PORT_INBOUND_EXCLUDE, 15020},
		{REDIRECT_PORT_OUTBOUND_EXCLUDE, 9999}},
	    .ncidrs = 1,
	    .cidrs = {
		{{{0, 0, htobe32(0xffff), htobe32(0x0a000000)}}, 96 + 8, REDIRECT_CIDR_EXCLUDE}}};
}

void place_set(
    struct place *p, const struct uuid *pod, int cgroup, const struct redirect_rules *rules)
{
	const struct redirect_where at = {cgroup, -1};

	if (redirect_set(p->r, pod, at, rules, &p->e))
		fail_msg("%s", p->e.msg);
}

struct netns_watch_seen place_seen(uint8_t last)
{
	struct netns_watch_seen s = {.addresses.naddresses = 1, .nroutes = 1};

	s.addresses.addresses[0] = (struct link_address){AF_INET, {10, 9, 0, last}};
	s.routes[0] = (struct redirect_cidr){
	    {{0, 0, htobe32(0xffff), htobe32(0x0a090000u | last)}}, 128, REDIRECT_CIDR_LOCAL};
	return s;
}

void place_live(struct place *p, const struct uuid *pod, int netns, uint8_t last)
{
	const struct netns_watch_seen seen = place_seen(last);

	if (redirect_live(p->r, pod, netns, &seen, &p->e))
		fail_msg("%s", p->e.msg);
}

void place_dial(int cgroup)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
	    .sin_port = htons(80),
	    .sin_addr.s_addr = htonl(0xc0000201)}; /* 192.0.2.1 */
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int procs = openat(cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
		if (write(procs, "0", 1) != 1 || unshare(CLONE_NEWNET))
			_exit(1);
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		_exit(connect(fd, (const struct sockaddr *)&to, sizeof(to)) ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int place_no_fd(void *ctx, const struct uuid *pod)
{
	(void)ctx;
	(void)pod;
	return -1;
}

void place_no_directory(void *ctx, const char *path)
{
	(void)ctx;
	(void)path;
}

const struct redirect_targets place_nowhere = {place_no_fd, place_no_fd, place_no_directory, NULL};
