/* injector_server_fuzz.c - any bytes from whoever connects to the webhook, by TLS, to the real
 * server.
 *
 * First byte: where they are cut.  Whatever comes: what reaches the handler is a body with its NUL,
 * asked for by the page's very path and as JSON; each answer has a status of ours; both are the
 * same wherever the bytes are cut; and when the client has gone nothing of it is left: the server
 * ends.
 */
#include "base/metrics.h"
#include "common/log.h"
#include "injector/connections.h"
#include "injector/server.h"
#include "tls_rig.h"

#include <sys/socket.h>
#include <sys/un.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SENT_MAX = 16 * 1024, STATUSES_MAX = 4096 };

struct talk {
	struct rig_end client;
	struct evbuffer *answers, *bodies;
	unsigned handled, handled_well;
	char statuses[STATUSES_MAX]; /* "200 404 " */
};

static struct {
	struct loop *loop;
	struct server *server;
	SSL_CTX *tls;
	struct rig_pair pair;
	struct talk *talk;
} w;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct err e;

	(void)argc, (void)argv;
	log_set_levels("error", NULL);
	must((w.loop = loop_new(&e)) != NULL);
	rig_pair_make(&w.pair);
	w.tls = SSL_CTX_new(TLS_client_method());
	return 0;
}

/* --- the server --- */

static void *on_begin(void *ctx)
{
	return ctx;
}

static void on_end(void *ctx, void *held)
{
	(void)ctx, (void)held;
}

static int on_body(void *held, const char *body, size_t len, struct evbuffer *out)
{
	bool well = body[0] & 1;

	(void)held;
	must(len && len <= SENT_MAX && !body[len]);
	evbuffer_add(w.talk->bodies, &len, sizeof(len));
	evbuffer_add(w.talk->bodies, body, len);
	w.talk->handled++;
	w.talk->handled_well += well;
	evbuffer_add_printf(out, well ? "{}" : "no");
	return well ? 200 : 400;
}

static void on_stopped(void *ctx)
{
	(void)ctx;
	loop_stop(w.loop);
}

/* A name that the kernel picks. */
static int start(struct sockaddr_un *at, socklen_t *len)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct err e;

	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	*len = sizeof(*at);
	must(!bind(fd, (struct sockaddr *)at, sizeof(sa_family_t)) && !listen(fd, 4));
	must(!getsockname(fd, (struct sockaddr *)at, len));
	w.server = server_new(w.loop, fd, &connections_usual,
	    &(struct server_handler){on_begin, on_body, on_end, NULL});
	must(!server_certificate_set(w.server, w.pair.cert_pem, w.pair.key_pem, &e));
	server_ready_set(w.server, NULL);
	return fd;
}

/* --- the client --- */

static void on_all_said(struct rig_end *e)
{
	rig_end_close(e);
	server_stop(w.server, 0, on_stopped, NULL);
}

/* As long as answers come there may be more. */
static void on_answers(struct bufferevent *bev, void *ctx)
{
	struct talk *t = ctx;

	evbuffer_add_buffer(t->answers, bufferevent_get_input(bev));
	if (t->client.said == 2)
		t->client.turns = RIG_TURNS;
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
	struct talk *t = ctx;

	(void)bev;
	if (what & BEV_EVENT_CONNECTED)
		rig_end_say(&t->client);
	else
		rig_end_close(&t->client);
}

static void talk(struct talk *t, const uint8_t *bytes, size_t size, size_t cut)
{
	struct sockaddr_un at;
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	w.talk = t;
	t->answers = evbuffer_new();
	t->bodies = evbuffer_new();
	start(&at, &len);
	must(!connect(fd, (struct sockaddr *)&at, len));
	t->client = (struct rig_end){
	    .loop = w.loop, .bytes = bytes, .size = size, .cut = cut, .all_said = on_all_said};
	t->client.bev = bufferevent_openssl_socket_new(loop_base(w.loop), fd, SSL_new(w.tls),
	    BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(t->client.bev, on_answers, NULL, on_event, t);
	bufferevent_enable(t->client.bev, EV_READ | EV_WRITE);
	loop_run(w.loop);
	must(t->client.said == 2);
	server_free(&w.server);
	metrics_clear();
}

/* --- laws --- */

/* Those of each answer; whether one is told to go on (100) depends on what has come by then. */
static void read_statuses(struct talk *t)
{
	static const char known[] = "200 400 404 405 413 415 417 501 503 ";
	const char *at, *all;
	size_t n = 0;

	evbuffer_add(t->answers, "", 1);
	all = (const char *)evbuffer_pullup(t->answers, -1);
	for (at = all; (at = strstr(at, "HTTP/")); at++) {
		char status[5] = "";
		must((at == all || at[-1] == '\n' || at[-1] == '}' || at[-1] == '>') &&
		     n + 5 < STATUSES_MAX);
		at += strcspn(at, " \n"); /* of the version that was asked with */
		memcpy(status, at + 1, 4);
		if (!strcmp(status, "100 "))
			continue;
		must(strstr(known, status) != NULL);
		n = (size_t)(stpcpy(t->statuses + n, status) - t->statuses);
	}
}

static unsigned count(const struct talk *t, const char *status)
{
	unsigned n = 0;

	for (const char *at = t->statuses; (at = strstr(at, status)); at++)
		n++;
	return n;
}

static bool has_word(const uint8_t *bytes, size_t size, const char *word)
{
	size_t n = strlen(word);

	for (size_t i = 0; i + n <= size; i++)
		if (!strncasecmp((const char *)bytes + i, word, n))
			return true;
	return false;
}

static void check(struct talk *t, const uint8_t *bytes, size_t size)
{
	must(count(t, "200 ") >= t->handled_well);
	must(count(t, "400 ") >= t->handled - t->handled_well);
	if (t->handled)
		must(memmem(bytes, size, "POST /inject", 12) &&
		     has_word(bytes, size, "application/json"));
}

static bool same(struct evbuffer *a, struct evbuffer *b)
{
	size_t n = evbuffer_get_length(a);

	return evbuffer_get_length(b) == n &&
	       (!n || !memcmp(evbuffer_pullup(a, -1), evbuffer_pullup(b, -1), n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct talk talks[2] = {0};
	size_t cut;

	if (size < 1)
		return 0;
	size = size - 1 < SENT_MAX ? size - 1 : SENT_MAX;
	cut = data[0] < size ? data[0] : size;
	for (int i = 0; i < 2; i++) {
		talk(&talks[i], data + 1, size, i ? cut : size);
		read_statuses(&talks[i]);
		check(&talks[i], data + 1, size);
	}
	must(!strcmp(talks[0].statuses, talks[1].statuses) &&
	     same(talks[0].bodies, talks[1].bodies));
	for (int i = 0; i < 2; i++) {
		evbuffer_free(talks[i].answers);
		evbuffer_free(talks[i].bodies);
	}
	return 0;
}
