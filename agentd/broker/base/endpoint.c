/* endpoint.c - see endpoint.h. */
#include "endpoint.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PORT_MAX = 65535 };

union address {
	struct sockaddr_storage any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* 0: none. */
static uint16_t parse_port(const char *text)
{
	size_t n = strspn(text, "0123456789");
	long port = n && n <= 5 && !text[n] ? strtol(text, NULL, 10) : 0;

	return port <= PORT_MAX ? (uint16_t)port : 0;
}

int broker_endpoint_parse(const char *text, struct sockaddr_storage *out, struct err *e)
{
	const bool bracket = *text == '[';
	const char *host = text + bracket, *end = strpbrk(host, bracket ? "]" : ":");
	const char *colon = end ? end + bracket : "";
	union address a = {.any.ss_family = AF_UNSPEC};
	char copy[INET6_ADDRSTRLEN] = "";
	uint16_t port = *colon == ':' ? htons(parse_port(colon + 1)) : 0;

	if (port && end - host < (long)sizeof(copy))
		memcpy(copy, host, (size_t)(end - host));
	if (inet_pton(AF_INET, copy, &a.v4.sin_addr) == 1) {
		a.v4.sin_family = AF_INET;
		a.v4.sin_port = port;
	} else if (inet_pton(AF_INET6, copy, &a.v6.sin6_addr) == 1) {
		a.v6.sin6_family = AF_INET6;
		a.v6.sin6_port = port;
	} else {
		return err_set(e, EINVAL,
		    "--metrics needs an address and a port, like 127.0.0.1:15091 or [::]:15091, "
		    "not \"%.80s\"",
		    text);
	}
	*out = a.any;
	return 0;
}
