/* cage_files.c - Landlock by its system calls: what exists gets a rule, the rest is refused.
 *
 * /etc is one rule, for its files are replaced by rename (a rule is tied to an inode, and a
 * resolver that cannot read the new resolv.conf asks 127.0.0.1): the worker can read what everybody
 * can read there.  Nothing can be written, made, removed or executed anywhere.  From ABI 4 on TCP
 * leads to the control planes' ports and to DNS only: not to the kubelet, a metadata service or a
 * local database.  No TCP port is taken but one that the kernel chooses (grpc asks so whether there
 * is IPv6): a service of the node that restarts must find its own free.  From ABI 6 on no abstract
 * unix socket of others and no signal to others.
 */
#include "cage_files.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* linux/landlock.h of 6.12; Debian 12 has older headers. */
struct ruleset {
	uint64_t fs, net, scoped;
};
struct port_rule {
	uint64_t access, port;
};
enum {
	RULE_PORT = 2,
	BIND_TCP = 1 << 0,
	CONNECT_TCP = 1 << 1,
	SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0,
	SCOPE_SIGNAL = 1 << 1,
	FS_RIGHTS_1 = (1 << 13) - 1, /* ABI 1 */
	FS_RIGHTS_2 = (1 << 14) - 1, /* and REFER */
	FS_RIGHTS_3 = (1 << 15) - 1, /* and TRUNCATE */
	FS_RIGHTS_5 = (1 << 16) - 1, /* and IOCTL_DEV */
	ABI_PORTS = 4,
	ABI_SCOPES = 6,
	ANY_FREE_PORT = 0,
	DNS = 53,
	READ = LANDLOCK_ACCESS_FS_READ_FILE,
	READ_ALL = READ | LANDLOCK_ACCESS_FS_READ_DIR,
};

#ifndef __has_feature /* clang's */
#define __has_feature(x) 0
#endif

static const struct {
	const char *path;
	unsigned access;
} readable[] = {
    {"/etc", READ}, /* the resolvers', localtime, the system's roots */
    {"/run/systemd/resolve", READ}, {"/run/resolvconf", READ}, {"/run/NetworkManager", READ},
    {"/usr/share/ca-certificates", READ}, {"/usr/local/share/ca-certificates", READ},
    {"/usr/share/grpc", READ}, /* its roots, on systems that have them there */
    {"/usr/lib/ssl", READ}, {"/usr/share/zoneinfo", READ}, {"/sys/devices/system/cpu", READ},
    {"/dev/urandom", READ},
    /* Our own descriptors and memory, as metrics.  No more of it: /proc/self/net is the node's. */
    {"/proc/self/fd", READ_ALL}, {"/proc/self/statm", READ},
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
    {"/", READ_ALL}, /* what a stack of a report needs: everything that is loaded */
#endif
};

static int add_path(int ruleset, const char *path, unsigned access, struct err *e)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = access};
	struct stat st;
	int fd = open(path, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return 0;
	rule.parent_fd = fd;
	if (!fstat(fd, &st) && !S_ISDIR(st.st_mode))
		rule.allowed_access &= READ;
	int rc = (int)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
	/* procfs makes a new inode for what nobody holds, and the rule would be lost. */
	if (rc || strncmp(path, "/proc/", 6) != 0)
		close(fd);
	return rc ? err_sys(e, "landlock: rule of %s", path) : 0;
}

/* Where a link in /etc really leads: its directory, for the file there is replaced too. */
static int add_target(int ruleset, const char *link, struct err *e)
{
	char path[PATH_MAX];

	if (!realpath(link, path))
		return 0;
	char *slash = strrchr(path, '/');
	if (slash == path)
		return add_path(ruleset, path, READ, e);
	*slash = '\0';
	return add_path(ruleset, path, READ, e);
}

static int add_files(int ruleset, struct err *e)
{
	static const char *const links[] = {"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf",
	    "/etc/ssl/certs/ca-certificates.crt"};

	for (size_t i = 0; i < sizeof(readable) / sizeof(readable[0]); i++)
		if (add_path(ruleset, readable[i].path, readable[i].access, e))
			return -1;
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (add_target(ruleset, links[i], e))
			return -1;
	return 0;
}

static int add_port(int ruleset, unsigned access, uint16_t port, struct err *e)
{
	struct port_rule rule = {.access = access, .port = port};

	if (syscall(SYS_landlock_add_rule, ruleset, RULE_PORT, &rule, 0))
		return err_sys(e, "landlock: rule of port %u", port);
	return 0;
}

static int add_ports(int ruleset, const uint16_t *ports, size_t n, struct err *e)
{
	if (add_port(ruleset, BIND_TCP, ANY_FREE_PORT, e) || add_port(ruleset, CONNECT_TCP, DNS, e))
		return -1;
	for (size_t i = 0; i < n; i++)
		if (add_port(ruleset, CONNECT_TCP, ports[i], e))
			return -1;
	return 0;
}

/* A kernel that knows less gets the fields that it knows. */
static int make_ruleset(int abi)
{
	static const uint64_t fs[] = {
	    0, FS_RIGHTS_1, FS_RIGHTS_2, FS_RIGHTS_3, FS_RIGHTS_3, FS_RIGHTS_5};
	enum { LEVELS = sizeof(fs) / sizeof(fs[0]) };
	const struct ruleset r = {
	    .fs = fs[abi < LEVELS ? abi : LEVELS - 1],
	    .net = abi >= ABI_PORTS ? BIND_TCP | CONNECT_TCP : 0,
	    .scoped = abi >= ABI_SCOPES ? SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL : 0,
	};

	return (int)syscall(SYS_landlock_create_ruleset, &r, sizeof(r), 0);
}

int cage_files_lock(const uint16_t *tcp_ports, size_t nports, struct err *e)
{
	int abi = (int)syscall(
	    SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION);

	if (abi < 0 && (errno == ENOSYS || errno == EOPNOTSUPP))
		return 0;
	auto_close int ruleset = abi < 0 ? -1 : make_ruleset(abi);
	if (ruleset < 0)
		return err_sys(e, "landlock");
	if (add_files(ruleset, e) || (abi >= ABI_PORTS && add_ports(ruleset, tcp_ports, nports, e)))
		return -1;
	if (syscall(SYS_landlock_restrict_self, ruleset, 0))
		return err_sys(e, "landlock");
	return abi;
}
