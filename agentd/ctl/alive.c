/* alive.c - connect -> one packet: a word, and lines for people. */
#include "alive.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum { PATIENCE_S = 5 };

static const char *const words[] = {[CTL_ALIVE_STARTING] = "starting",
    [CTL_ALIVE_READY] = "ready",
    [CTL_ALIVE_NOT] = "not ready",
    [CTL_ALIVE_OVER] = "over"};

static int fail(const char *path, const char *why)
{
	fprintf(stderr, "agentctl: %s: %s\n", path, why);
	return CTL_UNREACHABLE;
}

static void copy_lines(char *out, size_t size, const char *text)
{
	size_t n = 0;

	for (; *text && n + 1 < size; text++)
		out[n++] = *text == '\n' || (*text >= ' ' && *text <= '~') ? *text : '?';
	while (n && out[n - 1] == '\n')
		n--;
	out[n] = '\0';
}

/* False: no word that agentd has. */
static bool read_answer(struct ctl_alive *out, char *text)
{
	char *end = strchr(text, '\n');

	if (!end)
		return false;
	*end = '\0';
	for (unsigned i = CTL_ALIVE_STARTING; i <= CTL_ALIVE_OVER; i++)
		if (!strcmp(text, words[i]))
			out->is = (enum ctl_alive_is)i;
	copy_lines(out->why, sizeof(out->why), end + 1);
	return out->is != CTL_ALIVE_UNASKED;
}

int ctl_alive_ask(const struct ctl *c, struct ctl_alive *out)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	const char *path = ctl_option(c, "of");
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char text[sizeof(out->why) + 16];

	*out = (struct ctl_alive){.is = CTL_ALIVE_UNASKED};
	if (!path)
		return CTL_OK;
	if ((size_t)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path) >= sizeof(at.sun_path))
		return fail(path, "the path is too long for a socket");
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
	    connect(fd, (struct sockaddr *)&at, sizeof(at)))
		return fail(path, strerror(errno));
	ssize_t n = recv(fd, text, sizeof(text) - 1, 0);
	if (n < 0 && errno == EAGAIN)
		return fail(path, "agentd's broker does not answer");
	text[n > 0 ? n : 0] = '\0';
	return read_answer(out, text) ? CTL_OK : fail(path, "no agentd answers");
}
