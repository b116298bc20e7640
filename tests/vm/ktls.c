/* ktls.c - an app that wants the kernel to encrypt what it writes (TCP_ULP, TLS_TX).
 *
 * On a connection that is accelerated it gets the answer of a kernel that cannot, and its words go
 * on in plain.  An app that asked before it dialled is not accelerated: its records arrive as any
 * bytes do. They are read by a socket of this program's own, to which the kernel decrypts.
 */
#include "checks.h"
#include "lanes.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tls.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WORD = 2048, WORDS = 64, HEADER = 5, NONCE = 8, TAG = 16, APPLICATION_DATA = 23 };
enum { RECORD = HEADER + NONCE + WORD + TAG };

struct outcome {
	char wrong[96];
	bool none; /* the kernel has no TLS */
};

/* errno, or 0. */
static int ask_for_tls(int fd)
{
	return setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) ? errno : 0;
}

static int use_key(int fd, int direction)
{
	const struct tls12_crypto_info_aes_gcm_128 key = {
	    .info = {TLS_1_2_VERSION, TLS_CIPHER_AES_GCM_128},
	    .key = "a key of a test",
	    .salt = "abc"};

	return setsockopt(fd, SOL_TLS, direction, &key, sizeof(key)) ? errno : 0;
}

static int connect_to(int fd, const char *ip, uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};

	inet_pton(AF_INET, ip, &to.sin_addr);
	return connect(fd, (struct sockaddr *)&to, sizeof(to));
}

/* --- on a connection that is accelerated --- */

static void refuse_late(void *ctx, void *result)
{
	struct outcome *out = result;
	const bool inbound = *(const bool *)ctx;
	int listener = inbound ? lanes_listen(APP, APP_PORT) : lanes_listen(ENVOY, OUT);
	struct pair p = lanes_join(listener, inbound);
	int app = ask_for_tls(p.app), envoy = ask_for_tls(p.envoy);
	const char *wrong = lanes_words(&p);

	if (app != ENOENT || envoy != ENOENT)
		snprintf(out->wrong, sizeof(out->wrong), "the app heard %s, Envoy %s",
		    strerror(app), strerror(envoy));
	else if (wrong)
		snprintf(out->wrong, sizeof(out->wrong), "%s", wrong);
	lanes_part(&p);
	close(listener);
}

/* --- on one that asked first --- */

/* A connection of an app to itself, which is not captured: records are put in, words come out. */
static struct pair decrypter(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t size = sizeof(at);
	struct pair p;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
	p.app = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &size) ||
	    connect_to(p.app, "127.0.0.1", ntohs(at.sin_port)))
		broken("a connection to decrypt with");
	p.envoy = accept(listener, NULL, NULL);
	close(listener);
	if (ask_for_tls(p.envoy) || use_key(p.envoy, TLS_RX))
		broken("a socket that decrypts");
	return p;
}

static bool passes(const struct pair *p, const struct pair *plain, int word)
{
	char sent[WORD], record[RECORD], read[WORD];

	memset(sent, 'a' + word % 26, sizeof(sent));
	return send(p->app, sent, WORD, 0) == WORD &&
	       recv(p->envoy, record, RECORD, MSG_WAITALL) == RECORD &&
	       record[0] == APPLICATION_DATA && !memmem(record, RECORD, sent, TAG) &&
	       send(plain->app, record, RECORD, 0) == RECORD &&
	       recv(plain->envoy, read, WORD, MSG_WAITALL) == WORD && !memcmp(sent, read, WORD);
}

static const char *encrypt(const struct pair *p)
{
	const char *wrong = NULL;
	struct pair plain = decrypter();

	for (int i = 0; i < WORDS && !wrong; i++)
		if (!passes(p, &plain, i))
			wrong = "what the kernel encrypted did not arrive as it was sent";
	lanes_part(&plain);
	return wrong;
}

/* The kernel takes the question of a connected socket alone; that it was asked is remembered. */
static const char *ask_again(const struct pair *p, int early, struct outcome *out)
{
	int late = ask_for_tls(p->app);

	out->none = early == ENOENT && late == ENOENT;
	if (out->none)
		return lanes_words(p);
	if (early != ENOTCONN || late)
		return "asked first, and it does not work";
	return use_key(p->app, TLS_TX) ? "no key is taken" : encrypt(p);
}

static void ask_first(void *ctx, void *result)
{
	struct outcome *out = result;
	int listener = lanes_listen(ENVOY, OUT), early;
	struct pair p;
	const char *wrong;

	(void)ctx;
	lanes_become(APP);
	p.app = socket(AF_INET, SOCK_STREAM, 0);
	early = ask_for_tls(p.app);
	if (connect_to(p.app, peer_ip[0], 80))
		broken("a dial that asked for TLS");
	p.envoy = accept(listener, NULL, NULL);
	wrong = ask_again(&p, early, out);
	if (wrong)
		snprintf(out->wrong, sizeof(out->wrong), "%s (%s, %s)", wrong, strerror(early),
		    strerror(errno));
	lanes_part(&p);
	close(listener);
}

/* --- the checks --- */

static struct outcome outcome_of(const struct world *w, place_act f, bool inbound)
{
	struct outcome out = {.wrong = ""};

	if (visit(&w->pod, (struct who){0, 0}, f, &inbound, &out, sizeof(out)))
		snprintf(out.wrong, sizeof(out.wrong), "it died");
	return out;
}

void check_ktls(const struct world *w)
{
	const uint64_t before = lanes_counted(w).loopback.given;
	struct outcome out = outcome_of(w, ask_first, false);
	uint64_t given = lanes_counted(w).loopback.given - before;

	if (out.none)
		printf("     this kernel has no TLS (CONFIG_TLS)\n");
	check(!*out.wrong && !given, "TLS of the kernel, asked for before the dial, by TCP",
	    "%s; %llu bytes from socket to socket", out.wrong, (unsigned long long)given);
	for (int inbound = 0; inbound < 2; inbound++) {
		out = outcome_of(w, refuse_late, inbound);
		check(!*out.wrong,
		    inbound ? "afterwards it is refused, inbound" : "afterwards it is refused",
		    "%s", out.wrong);
	}
	check(lanes_counted(w).loopback.given > before + given,
	    "and words go from socket to socket", "%s", "none");
}
