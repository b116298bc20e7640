/* listen.c - see listen.h. */
#include "listen.h"
#include "common/err.h"
#include "common/mem.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BACKLOG = 512 };

struct address {
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;
	int family;
};

static int parse(struct address *a, const char *text, struct err *e)
{
	const char *colon = strrchr(text, ':');
	auto_free char *host = colon ? mem_dup(text, (size_t)(colon - text) + 1) : NULL;
	char *end = NULL, *at = host;
	unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
	size_t n = colon ? (size_t)(colon - text) : 0;

	*a = (struct address){.v6.sin6_family = AF_INET6, .v4.sin_family = AF_INET};
	if (host) {
		host[n] = '\0';
		if (*host == '[' && host[n - 1] == ']') {
			host[n - 1] = '\0';
			at++;
		}
		a->v6.sin6_port = a->v4.sin_port = htons((uint16_t)port);
		a->family = inet_pton(AF_INET6, at, &a->v6.sin6_addr) == 1 ? AF_INET6
			    : inet_pton(AF_INET, at, &a->v4.sin_addr) == 1 ? AF_INET
									   : 0;
	}
	if (a->family && *end == '\0' && end != colon + 1 && port < 65536)
		return 0;
	return err_set(e, ERR_INVALID, "--listen %s: must be ADDR:PORT", text);
}

static int open_listener(const struct address *a, struct err *e)
{
	const struct sockaddr *sa =
	    a->family == AF_INET6 ? (const void *)&a->v6 : (const void *)&a->v4;
	socklen_t len = a->family == AF_INET6 ? sizeof(a->v6) : sizeof(a->v4);
	auto_close int fd = socket(a->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1, off = 0;

	if (fd < 0)
		return err_sys(e, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (a->family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, sa, len) || listen(fd, BACKLOG))
		return err_sys(e, "listen");
	return take_fd(fd);
}

int listen_on(const char *text, struct err *e)
{
	struct address a;
	int fd;

	if (parse(&a, text, e))
		return -1;
	fd = open_listener(&a, e);
	if (fd < 0 && a.family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&a.v6.sin6_addr) &&
	    (e->code == EAFNOSUPPORT || e->code == EADDRNOTAVAIL)) {
		a.family = AF_INET;
		fd = open_listener(&a, e);
	}
	return fd < 0 ? err_wrap(e, "--listen %s", text) : fd;
}
