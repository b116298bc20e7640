/* cert_world.c - see cert_world.h. */
#include "cert_world.h"
#include "base/metrics.h"
#include "common/mem.h"
#include "tests/fake/secrets.h"
#include "tests/fake/x509.h"
#include <stdio.h>
#include <string.h>
#include <utlist.h>

struct world w;

static void setup_with(const struct cert_cache_options *o, const char *trust_domain)
{
	w = (struct world){.loop = fake_loop(), .options = *o};
	w.plane = (struct istiod_options){.name = "istiod",
	    .address = "istiod.test:15012",
	    .root = "SYSTEM",
	    .server_name = "istiod.test",
	    .trust_domain = trust_domain,
	    .cluster_id = "Kubernetes",
	    .mesh_id = "",
	    .connections = 1};
	w.istiod = istiod_new(w.loop, NULL, NULL, &w.plane, 0);
	w.ca = ca_client_new(w.loop, w.istiod, 1);
	w.cache = cert_cache_new(w.loop, w.istiod, w.ca, &w.options);
	secrets_watch();
}

int world_setup(void **state)
{
	(void)state;
	setup_with(
	    &(struct cert_cache_options){.reissue_min_ms = FLOOR_MS, .linger_ms = LINGER_MS}, "td");
	return 0;
}

int world_teardown(void **state)
{
	struct pod *p, *next;

	(void)state;
	LL_FOREACH_SAFE (w.pods, p, next) {
		leave(p);
		free(p);
	}
	cert_cache_free(&w.cache);
	assert_int_equal(fake_ca_pending(w.ca), 0);
	assert_int_equal(fake_loop_live(w.loop), 0);
	ca_client_free(&w.ca);
	istiod_free(&w.istiod);
	fake_loop_end(&w.loop);
	metrics_clear();
	assert_int_equal(secrets_freed(), 0);
	return 0;
}

void world_restart(const struct cert_cache_options *o, const char *trust_domain)
{
	world_teardown(NULL);
	setup_with(o, trust_domain);
}

static struct cert_spec spec_of(const char *sa)
{
	struct cert_spec s;

	memset(&s, 0, sizeof(s));
	strcpy(s.ns, "demo");
	snprintf(s.sa, sizeof(s.sa), "%s", sa);
	s.ttl_s = TTL_S;
	s.ratio = 0.5;
	return s;
}

struct pod *pod_of(const char *name, const char *sa)
{
	struct pod *p = mem_zalloc(sizeof(*p));

	p->spec = spec_of(sa);
	snprintf(p->name, sizeof(p->name), "demo/%s", name);
	snprintf((char *)p->uid.bytes, sizeof(p->uid.bytes), "%s", name);
	p->token.jwt = (char *)"SECRET token"; /* whose it is is told by the request's pod */
	LL_PREPEND(w.pods, p);
	return p;
}

void leave(struct pod *p)
{
	cert_unsubscribe(&p->sub);
}

static void on_leave(void *ctx)
{
	leave(ctx);
}

static const struct token *token_of(void *ctx, struct err *e)
{
	struct pod *p = ctx;

	p->asked++;
	if (p->asked == p->leave_after_question) /* before the work that this question leads to */
		loop_post(w.loop, on_leave, p);
	if (p->token.jwt)
		return &p->token;
	err_set(e, ERR_DENIED, "%s", p->problem ? p->problem : "token: expired");
	return NULL;
}

static void on_changed(void *ctx, struct cert *c, const char *why_not)
{
	struct pod *p = ctx;

	p->told++;
	p->has = c;
	if (c) /* whatever happens to the clock */
		assert_true(loop_now_ms(w.loop) / 1000 < c->leaf.not_after);
	if (c ? p->leave_when_told : p->leave_when_told_why && *why_not)
		leave(p);
	if (p->takes_along && c)
		leave(p->takes_along);
	if (p->brings && c)
		join(take(p->brings));
	/* Still there, even when the last one has left. */
	snprintf(p->serial, sizeof(p->serial), "%s", c ? c->leaf.serial : "");
	snprintf(p->why, sizeof(p->why), "%s", why_not);
}

void join(struct pod *p)
{
	p->sub = cert_subscribe(
	    w.cache, &p->spec, &(struct cert_subscriber){p->uid, p->name, token_of, on_changed, p});
}

void answer_with(struct answer a)
{
	const char *csr = fake_ca_request(w.ca)->csr_pem;
	int64_t now_s = loop_now_ms(w.loop) / 1000 - w.ahead_s;
	char serial[16];
	struct fake_leaf l = {.key = a.key ? a.key : fake_x509_key_of(csr),
	    .serial = serial,
	    .uri = a.uri ? a.uri : strstr(csr, "spiffe://"),
	    .not_before = now_s - 120 + a.starts_in_s,
	    .not_after = now_s + (a.ttl_s ? a.ttl_s : fake_ca_request(w.ca)->ttl_s)};

	snprintf(serial, sizeof(serial), "%d", ++w.serial);
	auto_free char *leaf = fake_x509_leaf(&l);
	const char *chain[] = {a.leaf ? a.leaf : leaf, a.between ? a.between : "BETWEEN",
	    a.root ? a.root : "ROOT one and two"};

	fake_ca_answer(w.ca, chain, a.n ? a.n : 3);
}

void answer(void)
{
	answer_with((struct answer){0});
}

void refuse(const char *why)
{
	fake_ca_fail(w.ca, ERR_UNAVAILABLE, why);
}

void set_clock(int64_t by_ms)
{
	w.ahead_s += by_ms / 1000;
	fake_loop_wall_step(w.loop, by_ms);
}

void sleep_for(int64_t ms)
{
	fake_loop_wall_step(w.loop, ms);
}

void later(int64_t ms)
{
	fake_loop_advance(w.loop, ms);
}

unsigned asked(void)
{
	return fake_ca_asked(w.ca);
}

unsigned pending(void)
{
	return fake_ca_pending(w.ca);
}

void join_and_get(struct pod *p)
{
	join(p);
	later(0);
	answer();
	assert_non_null(p->has);
}
