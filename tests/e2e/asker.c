/* asker.c - HOW COUNTS PAUSE_MS NAME=ADDRESS... : asks these names for ever, as resolvers do;
 * counts in COUNTS.
 *
 * HOW: libc (this one's), connected and unconnected (one datagram socket for ever, to the first
 * server of /etc/resolv.conf), tcp (a connection for each name), ares (c-ares, which keeps its
 * sockets).  A name with `-` before it is no name of istiod's.  `wrong`: it does not exist, has no
 * address, or another one.  `none`: no answer in the resolver's own patience.  SIGUSR1 forgets the
 * longest wait.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_ARES
#include <ares.h>
#endif

enum { ATTEMPTS = 2, MESSAGE = 4096, SERVER_FAILURE = 2 };
enum found { RIGHT, WRONG, NONE };

struct name {
	char text[256];
	struct in_addr address;
	bool foreign;
};

static struct {
	long long right, wrong, none, foreign_right, foreign_none, refused, in_a_row, longest_ms;
} n;
static struct sockaddr_in server = {.sin_family = AF_INET};
static int patience_ms = 5000; /* PATIENCE_MS: of those that do not read it in /etc/resolv.conf */
static volatile sig_atomic_t forget;
static char why[128];

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void on_signal(int number)
{
	(void)number;
	forget = 1;
}

static enum found judge(const struct name *of, struct in_addr got)
{
	if (got.s_addr == of->address.s_addr)
		return RIGHT;
	snprintf(why, sizeof(why), "another address: %s", inet_ntoa(got));
	return WRONG;
}

/* --- libc --- */

static enum found ask_libc(const struct name *of)
{
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	enum found f = RIGHT;
	int rc = getaddrinfo(of->text, "80", &hints, &found);

	if (rc) {
		snprintf(why, sizeof(why), "%s", gai_strerror(rc));
		return rc == EAI_AGAIN || rc == EAI_FAIL || rc == EAI_SYSTEM ? NONE : WRONG;
	}
	for (const struct addrinfo *a = found; a && f == RIGHT; a = a->ai_next)
		f = judge(of, ((const struct sockaddr_in *)a->ai_addr)->sin_addr);
	freeaddrinfo(found);
	return f;
}

/* --- sockets --- */

static uint16_t number;

static size_t write_question(uint8_t *out, const char *name)
{
	uint8_t *at = out + 12;

	memset(out, 0, 12);
	number++;
	out[0] = (uint8_t)(number >> 8);
	out[1] = (uint8_t)number;
	out[2] = out[5] = 1;
	for (const char *label = name; *label;) {
		size_t size = strcspn(label, ".");
		*at++ = (uint8_t)size;
		memcpy(at, label, size);
		at += size;
		label += size + (label[size] == '.');
	}
	memcpy(at, "\0\0\1\0\1", 5);
	return (size_t)(at + 5 - out);
}

/* False: not an answer to this question, or one that says "ask again". */
static bool read_answer(const struct name *of, const uint8_t *in, ssize_t size, enum found *f)
{
	struct in_addr got;

	if (size < 12 || in[0] != (uint8_t)(number >> 8) || in[1] != (uint8_t)number ||
	    (in[3] & 15) == SERVER_FAILURE)
		return false;
	if ((in[3] & 15) || !in[7]) {
		snprintf(why, sizeof(why), "code %d, %d answers", in[3] & 15, in[7]);
		*f = WRONG;
		return true;
	}
	memcpy(&got, in + size - 4, 4);
	*f = judge(of, got);
	return true;
}

static bool await_datagram(int fd, const struct name *of, enum found *f)
{
	uint8_t in[MESSAGE];
	long long end = now_ms() + patience_ms;

	for (long long left; (left = end - now_ms()) > 0;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (poll(&p, 1, (int)left) <= 0)
			continue;
		ssize_t size = recv(fd, in, sizeof(in), MSG_DONTWAIT);
		if (size < 0 && errno != EAGAIN && errno != EINTR) {
			n.refused++;
			return false;
		}
		if (size >= 12 && in[0] == (uint8_t)(number >> 8) && in[1] == (uint8_t)number)
			return read_answer(of, in, size, f);
	}
	return false;
}

static enum found ask_datagram(const struct name *of, bool connected)
{
	static int fd = -1;
	uint8_t out[MESSAGE];
	enum found f = NONE;

	if (fd < 0) {
		fd = socket(AF_INET, SOCK_DGRAM, 0);
		if (connected && connect(fd, (struct sockaddr *)&server, sizeof(server)))
			abort();
	}
	for (int i = 0; i < ATTEMPTS; i++) {
		size_t size = write_question(out, of->text);
		ssize_t sent = connected ? send(fd, out, size, 0)
					 : sendto(fd, out, size, 0, (struct sockaddr *)&server,
					       sizeof(server));
		if (sent < 0) {
			n.refused++;
			continue;
		}
		if (await_datagram(fd, of, &f))
			return f;
	}
	return NONE;
}

static bool ask_one_stream(const struct name *of, enum found *f)
{
	const struct timeval patience = {.tv_sec = patience_ms / 1000};
	uint8_t out[MESSAGE], in[MESSAGE];
	size_t size = write_question(out + 2, of->text);
	bool done = false;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	out[0] = (uint8_t)(size >> 8);
	out[1] = (uint8_t)size;
	setsockopt(
	    fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)); /* of connect(), too */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&server, sizeof(server)) ||
	    send(fd, out, size + 2, MSG_NOSIGNAL) < 0) {
		n.refused++;
		snprintf(why, sizeof(why), "%s", strerror(errno));
	} else if (recv(fd, in, 2, MSG_WAITALL) == 2) {
		ssize_t got = recv(fd, in + 2, (size_t)(in[0] << 8 | in[1]), MSG_WAITALL);
		done = got > 0 && read_answer(of, in + 2, got, f);
	}
	close(fd);
	return done;
}

static enum found ask_stream(const struct name *of)
{
	enum found f = NONE;

	for (int i = 0; i < ATTEMPTS && !ask_one_stream(of, &f); i++)
		;
	return f;
}

static enum found ask_connected(const struct name *of)
{
	return ask_datagram(of, true);
}

static enum found ask_unconnected(const struct name *of)
{
	return ask_datagram(of, false);
}

/* --- c-ares --- */

#ifdef WITH_ARES
struct asked {
	const struct name *of;
	enum found f;
	bool done;
};

static void on_host(void *ctx, int status, int timeouts, struct hostent *host)
{
	struct asked *a = ctx;
	struct in_addr got;

	(void)timeouts;
	a->done = true;
	a->f = NONE;
	snprintf(why, sizeof(why), "%s", ares_strerror(status));
	if (status == ARES_ENOTFOUND || status == ARES_ENODATA)
		a->f = WRONG;
	if (status != ARES_SUCCESS)
		return;
	a->f = RIGHT;
	for (char **at = host->h_addr_list; *at && a->f == RIGHT; at++) {
		memcpy(&got, *at, sizeof(got));
		a->f = judge(a->of, got);
	}
}

static enum found ask_ares(const struct name *of)
{
	static ares_channel channel;
	struct ares_options o = {
	    .flags = ARES_FLAG_STAYOPEN, .timeout = patience_ms, .tries = ATTEMPTS};
	struct asked a = {.of = of};

	if (!channel && ares_init_options(&channel, &o, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES))
		abort();
	ares_gethostbyname(channel, of->text, AF_INET, on_host, &a);
	while (!a.done) {
		struct timeval t, most = {.tv_sec = 1};
		fd_set in, out;
		FD_ZERO(&in);
		FD_ZERO(&out);
		int top = ares_fds(channel, &in, &out);
		select(top, &in, &out, NULL, ares_timeout(channel, &most, &t));
		ares_process(channel, &in, &out);
	}
	return a.f;
}
#endif

/* --- */

static void read_server(void)
{
	char line[256], text[64];
	FILE *f = fopen("/etc/resolv.conf", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "nameserver %63s", text) == 1 &&
		    inet_pton(AF_INET, text, &server.sin_addr) == 1)
			break;
	if (f)
		fclose(f);
	server.sin_port = htons(53);
}

static void say(int fd)
{
	char text[512];
	int size = snprintf(text, sizeof(text),
	    "{\"right\": %lld, \"wrong\": %lld, \"none\": %lld, \"foreign_right\": %lld, "
	    "\"foreign_none\": %lld, "
	    "\"refused\": %lld, \"in_a_row\": %lld, \"longest_ms\": %lld}",
	    n.right, n.wrong, n.none, n.foreign_right, n.foreign_none, n.refused, n.in_a_row,
	    n.longest_ms);

	memset(text + size, ' ', sizeof(text) - (size_t)size);
	if (pwrite(fd, text, sizeof(text), 0) != sizeof(text))
		abort();
}

static void count(const struct name *of, enum found f, long long took)
{
	if (forget)
		n.longest_ms = forget = 0;
	if (took > n.longest_ms)
		n.longest_ms = took;
	n.in_a_row = f == RIGHT ? n.in_a_row + 1 : 0;
	if (of->foreign)
		*(f == RIGHT ? &n.foreign_right : &n.foreign_none) += 1;
	else
		*(f == RIGHT ? &n.right : f == WRONG ? &n.wrong : &n.none) += 1;
	if (f == WRONG)
		fprintf(stderr, "%lld %s: %s\n", now_ms(), of->text, why);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *how;
		enum found (*ask)(const struct name *of);
	} all[] = {
	    {"libc", ask_libc},
	    {"connected", ask_connected},
	    {"unconnected", ask_unconnected},
	    {"tcp", ask_stream},
#ifdef WITH_ARES
	    {"ares", ask_ares},
#endif
	};
	enum found (*ask)(const struct name *of) = NULL;
	struct name names[16];
	int total = 0;

	for (size_t i = 0; argc > 4 && i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(all[i].how, argv[1]))
			ask = all[i].ask;
	int fd = ask ? open(argv[2], O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
	for (int i = 4; i < argc && total < 16; i++, total++) {
		names[total].foreign = argv[i][0] == '-';
		char *text = argv[i] + names[total].foreign, *is = strchr(text, '=');
		if (!is || inet_pton(AF_INET, is + 1, &names[total].address) != 1)
			return 2;
		snprintf(
		    names[total].text, sizeof(names[total].text), "%.*s", (int)(is - text), text);
	}
	if (fd < 0 || !total)
		return 2;
	if (getenv("PATIENCE_MS"))
		patience_ms = atoi(getenv("PATIENCE_MS"));
	signal(SIGUSR1, on_signal);
	read_server();
	for (int i = 0;; i = (i + 1) % total) {
		long long began = now_ms();
		enum found f = ask(&names[i]);
		count(&names[i], f, now_ms() - began);
		say(fd);
		usleep((useconds_t)atoi(argv[3]) * 1000);
	}
}
