/* tcp_list.c - /proc/thread-self/net/tcp: a heading, then a line for each socket. */
#include "tcp_list.h"
#include <endian.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LINES_MAX = 4096 /* some milliseconds */ };

/* Fields of a line, parted by blanks and colons. */
enum { ADDRESS = 1, PORT, REMOTE, STATE = 5, UID = 11, FIELDS };

static uint32_t hex(const char *text)
{
	char word[9];

	snprintf(word, sizeof(word), "%s", text);
	return (uint32_t)strtoul(word, NULL, 16);
}

/* Its words are shown as they lie in memory. */
static bool parse_address(const char *text, struct redirect_address *out)
{
	size_t length = strlen(text);

	*out = (struct redirect_address){{0, 0, htobe32(0xffff), hex(text)}};
	for (int i = 0; i < 4 && length == 32; i++)
		out->word[i] = hex(text + (ptrdiff_t)i * 8);
	return length == 8 || length == 32;
}

/* False: the heading. */
static bool parse(char *text, struct redirect_tcp_socket *out)
{
	char *field[FIELDS], *rest = NULL;

	for (int i = 0; i < FIELDS; i++)
		if (!(field[i] = strtok_r(i ? NULL : text, " :", &rest)))
			return false;
	out->port = hex(field[PORT]);
	out->state = hex(field[STATE]);
	out->uid = (uint32_t)strtoul(field[UID], NULL, 10);
	return parse_address(field[ADDRESS], &out->address) &&
	       parse_address(field[REMOTE], &out->remote);
}

void ebpf_tcp_list(
    uint32_t family, bool (*each)(void *ctx, const struct redirect_tcp_socket *s), void *ctx)
{
	const char *path =
	    family == AF_INET ? "/proc/thread-self/net/tcp" : "/proc/thread-self/net/tcp6";
	FILE *f = fopen(path, "re");
	struct redirect_tcp_socket s;
	char text[512];
	bool more = f;

	for (int n = 0; more && n < LINES_MAX && fgets(text, sizeof(text), f); n++)
		if (parse(text, &s))
			more = each(ctx, &s);
	if (f)
		fclose(f);
}

bool ebpf_tcp_is_loopback(const struct redirect_address *a)
{
	if (a->word[0] | a->word[1])
		return false;
	if (!a->word[2] && a->word[3] == htobe32(1))
		return true;
	return (!a->word[2] || a->word[2] == htobe32(0xffff)) && be32toh(a->word[3]) >> 24 == 127;
}
