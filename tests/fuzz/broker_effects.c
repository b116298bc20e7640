/* broker_effects.c - see broker_effects.h. */
#include "broker_effects.h"
#include "border/protocol.h"
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define EFFECTS_SECRET "a secret that no worker asked for"

char effects_dir[32], effects_secret[64];
static struct stat effects_before[2];

static void effects_fail(const char *what, const char *name)
{
	fprintf(stderr, "broker_requests_fuzz: %s: %s\n", what, name);
	abort();
}

static void effects_look(struct stat st[2])
{
	memset(st, 0, 2 * sizeof(*st));
	if (lstat(effects_dir, &st[0]) || lstat(effects_secret, &st[1]))
		effects_fail("gone", effects_dir);
	for (int i = 0; i < 2; i++)
		memset(&st[i].st_atim, 0, sizeof(st[i].st_atim));
}

void effects_watch(void)
{
	strcpy(effects_dir, "/tmp/bwXXXXXX");
	if (!mkdtemp(effects_dir))
		abort();
	snprintf(effects_secret, sizeof(effects_secret), "%s/secret", effects_dir);
	int fd = open(effects_secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, EFFECTS_SECRET, strlen(EFFECTS_SECRET)) < 0)
		abort();
	close(fd);
	effects_look(effects_before);
}

void effects_unwatch(void)
{
	unlink(effects_secret);
	rmdir(effects_dir);
}

static bool effects_one_of(const char *name, const char *const *names)
{
	char temp[40];

	for (; *names; names++) {
		snprintf(temp, sizeof(temp), ".%s.new", *names);
		if (!strcmp(name, *names) || !strcmp(name, temp))
			return true;
	}
	return false;
}

static bool effects_hex(const char *name, size_t size)
{
	return strlen(name) == size && strspn(name, "0123456789abcdef-") == size;
}

/* One rule for each directory that the broker has. */
static bool effects_may_be(const char *path, const char *name, int level)
{
	static const char *const top[] = {
	    "lock", "admin.sock", "csi.sock", "pods", "state", "handover", NULL};
	static const char *const mount[] = {
	    "socket", "XDS", "envoy-rev.json", "root-cert.pem", NULL};
	static const char *const state[] = {
	    "cert", "spec", "pod", "names", "rules", "served", NULL};
	bool pods = strstr(path, "/pods/") != NULL;

	switch (level) {
	case 0:
		return true;
	case 1:
		return effects_one_of(name, top);
	case 2:
		return pods ? effects_hex(name, UUID_TEXT_SIZE - 1) : effects_one_of(name, state);
	case 3:
		return pods ? !strcmp(name, "mount")
			    : effects_hex(name, 2 * LINK_STATE_ID_SIZE) ||
				  effects_hex(name, UUID_TEXT_SIZE - 1);
	default:
		return level == 4 && pods && effects_one_of(name, mount);
	}
}

/* The one link that it makes says which name the kubelet has registered. */
static bool effects_is_registered(const char *path, const char *name, int level)
{
	char to[NAME_MAX + 1] = "";

	return level == 1 && !strcmp(name, "registered") &&
	       readlink(path, to, sizeof(to) - 1) > 0 && !strchr(to, '/');
}

static int effects_check_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)flag;
	if (effects_is_registered(path, path + ftw->base, ftw->level))
		return 0;
	if (!effects_may_be(path, path + ftw->base, ftw->level))
		effects_fail("a name of its own", path);
	if (S_ISLNK(st->st_mode) || (S_ISREG(st->st_mode) && st->st_nlink != 1) ||
	    st->st_uid != 0 || st->st_size > LINK_FILE_SIZE_MAX || (st->st_mode & 06000))
		effects_fail("made in a way it should not be", path);
	return 0;
}

void effects_check(const char *run)
{
	struct stat now[2];

	effects_look(now);
	if (memcmp(now, effects_before, sizeof(now)) != 0)
		effects_fail("changed", effects_dir);
	if (run)
		nftw(run, effects_check_one, 8, FTW_PHYS);
}

/* Files of uids, of root, and nobody else's to read. */
static int effects_check_identity(
    const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	const char *name = path + ftw->base;
	char uid[UUID_TEXT_SIZE];

	(void)flag;
	if (ftw->level == 0)
		return 0;
	snprintf(uid, sizeof(uid), "%s", name);
	if (!effects_hex(uid, UUID_TEXT_SIZE - 1) || strcmp(name + UUID_TEXT_SIZE - 1, ".pem") != 0)
		effects_fail("a name of its own", path);
	if (!S_ISREG(st->st_mode) || st->st_nlink != 1 || st->st_uid != 0 ||
	    (st->st_mode & 07777) != 0600 || st->st_size > 64 << 10)
		effects_fail("made in a way it should not be", path);
	return 0;
}

void effects_check_identities(const char *dir)
{
	nftw(dir, effects_check_identity, 4, FTW_PHYS);
}

/* "<id> <parent> <dev> <root> <point> <options> ...", of a directory in /tmp that is ours. */
static void effects_check_mount(const char *line, const char *kubelet)
{
	static const char below[] = "/pods/", plugin[] = "/volumes/kubernetes.io~csi/";
	char root[512], point[512], options[512], source[512], plain[80], own[80];
	const char *uid, *rest, *end = strstr(line, " - ");

	if (sscanf(line, "%*s %*s %*s %511s %511s %511s", root, point, options) != 3 || !end ||
	    sscanf(end, " - %*s %511s", source) != 1)
		effects_fail("mountinfo", line);
	if (!strncmp(point, effects_dir, strlen(effects_dir)))
		effects_fail("mounted outside", line);
	if (strncmp(point, kubelet, strlen(kubelet)) != 0)
		return;
	uid = point + strlen(kubelet) + strlen(below);
	rest = uid + UUID_TEXT_SIZE - 1;
	snprintf(plain, sizeof(plain), "/pods/%.36s/mount", uid);
	snprintf(own, sizeof(own), "agentd:%.36s", uid);
	if (strncmp(point + strlen(kubelet), below, strlen(below)) != 0 ||
	    strncmp(rest, plugin, strlen(plugin)) != 0 ||
	    strcmp(strchr(rest + strlen(plugin), '/'), "/mount") != 0 ||
	    !(strstr(root, plain) || (!strcmp(root, "/mount") && !strcmp(source, own))) ||
	    !strstr(options, "ro,nosuid,nodev,noexec"))
		effects_fail("mounted in a way it should not be", line);
}

void effects_check_mounts(const char *kubelet)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096];

	while (f && fgets(line, sizeof(line), f))
		effects_check_mount(line, kubelet);
	if (!f || fclose(f))
		abort();
}

void effects_check_listener(int fd, const char *run)
{
	struct sockaddr_un a = {.sun_family = AF_UNSPEC};
	socklen_t size = sizeof(a), one = sizeof(int);
	int listening = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &one) || !listening ||
	    getsockname(fd, (struct sockaddr *)&a, &size) || a.sun_family != AF_UNIX ||
	    strncmp(a.sun_path, run, strlen(run)) != 0)
		effects_fail("no listener of its own", a.sun_path);
}

bool effects_is_pods_socket(int fd, ino_t home)
{
	struct sockaddr_storage peer;
	socklen_t size = sizeof(peer), one = sizeof(int);
	int domain = 0, netns;
	struct stat st;

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &one) ||
	    (domain != AF_INET && domain != AF_INET6))
		return false;
	netns = ioctl(fd, SIOCGSKNS);
	if (netns < 0 || fstat(netns, &st) || st.st_ino == home ||
	    !getpeername(fd, (struct sockaddr *)&peer, &size))
		effects_fail("a socket", "of the node's own network");
	if (getsockname(fd, (struct sockaddr *)&peer, &size) ||
	    !((struct sockaddr_in *)&peer)->sin_port)
		effects_fail("a socket", "that can be given a port");
	close(netns);
	return true;
}

void effects_check_memory(int fd)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	char start[sizeof(EFFECTS_SECRET)] = "";

	if ((fcntl(fd, F_GET_SEALS) & seals) != seals)
		effects_fail("handed out", "memory that can be changed");
	if (pread(fd, start, sizeof(start) - 1, 0) > 0 && !strcmp(start, EFFECTS_SECRET))
		effects_fail("handed out", EFFECTS_SECRET);
}
