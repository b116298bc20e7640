/* resolve.c - NAME: its IPv4 addresses as this libc finds them, one a line; linked with musl. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	char text[INET_ADDRSTRLEN];
	int rc = argc == 2 ? getaddrinfo(argv[1], "80", &hints, &found) : EAI_NONAME;

	if (rc) {
		fprintf(stderr, "resolve: %s\n", gai_strerror(rc));
		return 1;
	}
	for (const struct addrinfo *a = found; a; a = a->ai_next) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)a->ai_addr;
		puts(inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text)));
	}
	freeaddrinfo(found);
	return 0;
}
