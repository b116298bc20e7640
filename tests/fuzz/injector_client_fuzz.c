/* injector_client_fuzz.c - any bytes as an API server's answer, by TLS, to the real client.
 *
 * First byte: where they are cut.  Whatever comes: there is one end; without an answer there is a
 * reason, with one there is none but for a status that is not 200, and it is printable; a body is
 * made of bytes that came; all of it is the same wherever they are cut; and the next question is
 * answered.
 */
#include "injector/kube/client.h"
#include "tls_rig.h"

#include <event2/listener.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SENT_MAX = 16 * 1024 };

struct heard {
	unsigned ends;
	int status;
	char *body;
	size_t len;
	int64_t date_s;
};

static struct {
	struct loop *loop;
	struct kube_client *client;
	SSL_CTX *tls;
	struct rig_pair pair;
	struct rig_end server;
	bool over; /* the server has said all, or was hung up on */
	struct heard heard;
	char dir[32];
} w;

/* --- the server --- */

static void look_at_end(void)
{
	if (w.heard.ends && (w.over || !w.server.said))
		loop_stop(w.loop);
}

static void on_all_said(struct rig_end *e)
{
	rig_end_close(e);
	w.over = true;
	look_at_end();
}

/* A question is smaller than what is read at once. */
static void on_question(struct bufferevent *bev, void *ctx)
{
	struct evbuffer *in = bufferevent_get_input(bev);

	(void)ctx;
	evbuffer_drain(in, evbuffer_get_length(in));
	if (!w.server.said)
		rig_end_say(&w.server);
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
	(void)bev, (void)ctx;
	if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
		rig_end_close(&w.server);
}

static void on_accepted(
    struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *a, int n, void *ctx)
{
	(void)l, (void)a, (void)n, (void)ctx;
	rig_end_close(&w.server);
	w.server.bev = bufferevent_openssl_socket_new(loop_base(w.loop), fd, SSL_new(w.tls),
	    BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
	bufferevent_setcb(w.server.bev, on_question, NULL, on_event, NULL);
	bufferevent_enable(w.server.bev, EV_READ | EV_WRITE);
}

static unsigned listen_somewhere(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	static struct evconnlistener *l; /* for ever */

	l = evconnlistener_new_bind(loop_base(w.loop), on_accepted, NULL,
	    LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_CLOSE_ON_FREE, 8, (struct sockaddr *)&a, sizeof(a));
	must(l && !getsockname(evconnlistener_get_fd(l), (struct sockaddr *)&a, &len));
	return ntohs(a.sin_port);
}

/* --- the start --- */

static const char *const files[] = {"token", "ca.crt", "namespace"};

static void put_file(const char *name, const char *text)
{
	auto_free char *path = mem_printf("%s/%s", w.dir, name);
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	must(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void remove_files(void)
{
	for (unsigned i = 0; i < sizeof(files) / sizeof(*files); i++) {
		auto_free char *path = mem_printf("%s/%s", w.dir, files[i]);
		unlink(path);
	}
	rmdir(w.dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char port[8];
	struct err e;

	(void)argc, (void)argv;
	must((w.loop = loop_new(&e)) != NULL);
	rig_pair_make(&w.pair);
	w.tls = SSL_CTX_new(TLS_server_method());
	must(SSL_CTX_use_certificate(w.tls, w.pair.cert) &&
	     SSL_CTX_use_PrivateKey(w.tls, w.pair.key));
	strcpy(w.dir, "/tmp/agentd-fuzz.XXXXXX");
	must(mkdtemp(w.dir) != NULL);
	atexit(remove_files);
	put_file("token", "word");
	put_file("ca.crt", w.pair.cert_pem);
	put_file("namespace", "ns");
	snprintf(port, sizeof(port), "%u", listen_somewhere());
	setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1", 1);
	setenv("KUBERNETES_SERVICE_PORT", port, 1);
	w.client = kube_client_new(w.loop, w.dir, &e);
	must(w.client != NULL);
	return 0;
}

/* --- a question --- */

static void check_why(const struct kube_answer *a)
{
	must(!*a->why == (a->status == 200));
	for (const char *s = a->why; *s; s++)
		must(*s >= ' ' && *s <= '~');
}

static void on_answer(void *ctx, const struct kube_answer *a)
{
	(void)ctx;
	check_why(a);
	must((!a->status || a->status >= 200) && a->status <= 999 && a->len <= SENT_MAX &&
	     (a->status || !a->len));
	must(!a->body[a->len]);
	w.heard.ends++;
	w.heard.status = a->status;
	w.heard.len = a->len;
	w.heard.body = mem_dup(a->body, a->len + 1);
	w.heard.date_s = a->date_s;
	look_at_end();
}

static struct heard ask(const void *bytes, size_t size, size_t cut)
{
	w.heard = (struct heard){0};
	w.over = false;
	w.server = (struct rig_end){
	    .loop = w.loop, .bytes = bytes, .size = size, .cut = cut, .all_said = on_all_said};
	kube_ask(w.client, &(struct kube_ask){"GET", "/x", NULL}, on_answer, NULL);
	loop_run(w.loop);
	must(w.heard.ends == 1 && w.server.said == 2);
	kube_hang_up(w.client);
	return w.heard;
}

/* Each of its bytes came, in this order. */
static bool came(const struct heard *h, const uint8_t *bytes, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < size && n < h->len; i++)
		n += bytes[i] == (uint8_t)h->body[n];
	return n == h->len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char good[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
	struct heard whole, cut, next;

	if (size < 1)
		return 0;
	size = size - 1 < SENT_MAX ? size - 1 : SENT_MAX;
	whole = ask(data + 1, size, size);
	cut = ask(data + 1, size, data[0] < size ? data[0] : size);
	next = ask(good, strlen(good), strlen(good));
	must(came(&whole, data + 1, size));
	must(whole.status == cut.status && whole.len == cut.len && whole.date_s == cut.date_s);
	must(!memcmp(whole.body, cut.body, whole.len));
	must(next.status == 200 && !strcmp(next.body, "{}"));
	free(whole.body);
	free(cut.body);
	free(next.body);
	return 0;
}
