/* check.c
 *
 * What the broker sent is read -> the settings -> roots and revocation lists -> a first call ->
 * with --connect: each control plane is dialled as agentd does it (istiod/pool.h).
 */
#include "check.h"
#include "base/loop.h"
#include "border/protocol.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/mem.h"
#include "first_call.h"
#include "rpc/rpc.h"
#include "worker/config/config.h"
#include "worker/crypto/revocation.h"
#include "worker/crypto/roots.h"
#include "worker/crypto/x509.h"
#include "worker/istiod/pool.h"
#include "worker/link/cage.h"
#include "worker/link/memfd.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ALL_MS = 15000 };

struct plane {
	struct check *check;
	const struct istiod_options *options;
	struct link_packet told; /* what == 0: nothing about its root file */
	char *roots_pem;         /* NULL: the system's, or none */
	char note[ROOTS_NOTE_SIZE];
	struct revocation *list; /* NULL: none, or not a good one */
	struct err list_why;
	bool lost; /* no roots: it cannot be dialled */
	struct pool *pool;
	bool said;
};

struct check {
	const struct config *config;
	struct loop *loop;
	struct rpc *rpc;
	struct loop_timer late;
	struct plane planes[LINK_PLANES_MAX];
	unsigned waiting; /* for so many answers */
	int problems;
};

static void row(struct check *k, const char *outcome, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void row(struct check *k, const char *outcome, const char *what, const char *fmt, ...)
{
	va_list ap;

	printf("%-8s %-22.22s ", outcome, what);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	(void)fflush(stdout); /* before a call that may be the last */
	k->problems += !strcmp(outcome, "PROBLEM");
}

/* --- roots --- */

static void take_roots(struct plane *p, const struct link_packet *told, int fd)
{
	size_t size = 0;
	struct err e = {.msg = ""};
	auto_free char *text =
	    told->state == LINK_FILE_CONTENT ? link_memfd_read(fd, &size, &e) : NULL;

	if (text)
		p->roots_pem = roots_read(text, size, p->note, &e);
	p->told = *told;
	snprintf(p->told.why, LINK_WHY_SIZE, "%s", e.msg);
}

static void take_list(struct plane *p, const struct link_packet *told, int fd)
{
	size_t size = 0;
	auto_free char *text =
	    told->state == LINK_FILE_CONTENT ? link_memfd_read(fd, &size, &p->list_why) : NULL;

	if (text)
		p->list = revocation_read(text, size, &p->list_why);
}

static void hear_files(struct check *k, int broker_fd)
{
	struct fdpass_got got;
	struct link_packet p;

	while (fdpass_receive(broker_fd, &p, sizeof(p), 0, &got) >= 0 && got.size == sizeof(p)) {
		auto_close int fd = fdpass_first(&got);

		if (p.id >= k->config->nplanes)
			continue;
		if (p.kind == LINK_FOLLOW_CRL)
			take_list(&k->planes[p.id], &p, fd);
		else
			take_roots(&k->planes[p.id], &p, fd);
	}
}

static char *date_of(int64_t unix_s, char out[32])
{
	const time_t at = (time_t)unix_s;
	struct tm tm;

	if (!gmtime_r(&at, &tm) || !strftime(out, 32, "%Y-%m-%d %H:%M UTC", &tm))
		*out = '\0';
	return out;
}

static void show_life(struct check *k, const struct plane *p, const char *what)
{
	struct x509_life life;
	char date[32];

	x509_pem_life(p->roots_pem, &life);
	if (life.last_end <= time(NULL))
		row(k, "PROBLEM", what, "expired at %s: fetch the control plane's own",
		    date_of(life.last_end, date));
	else
		row(k, life.first_end <= time(NULL) || *p->note ? "note" : "ok", what,
		    "%u certificate%s, the first expires at %s%s%s", life.n, life.n == 1 ? "" : "s",
		    date_of(life.first_end, date), *p->note ? "; " : "", p->note);
}

/* What cannot be read at all has a row of the broker's already. */
static void check_roots(struct check *k, struct plane *p)
{
	auto_free char *what = mem_printf("roots of %s", p->options->name);
	const long index = p - k->planes;

	p->lost = !p->roots_pem && strcmp(p->options->root, "SYSTEM") != 0;
	if (p->roots_pem)
		show_life(k, p, what);
	else if (!p->lost)
		row(k, "ok", what, "the system's");
	else if (*p->told.why)
		row(k, "PROBLEM", what, "--root-file %ld: %s", index, p->told.why);
	else if (p->told.what)
		k->problems++;
	else
		row(k, "PROBLEM", what,
		    "none: name the control plane's by --root-file %ld=FILE, or \"root: SYSTEM\"",
		    index);
}

/* --- revocation lists --- */

/* Of the roots each is a chain of its own; below which of them the mesh's certificates are is not
 * known here, nor which CAs are between. */
static struct revocation_trial try_list(const struct plane *p, time_t now)
{
	static const char end[] = "-----END CERTIFICATE-----\n";
	struct revocation_trial best = {.result = REVOCATION_FAILS}, one;
	const char *stop;

	for (const char *at = p->roots_pem; at && (stop = strstr(at, end)); at = stop) {
		stop += strlen(end);
		auto_free char *root = mem_printf("%.*s", (int)(stop - at), at);

		revocation_try(p->list, root, root, now, &one);
		if (at == p->roots_pem || one.result > best.result)
			best = one;
	}
	return best;
}

static void check_list(struct check *k, const struct plane *p)
{
	auto_free char *what = mem_printf("CRL of %s", p->options->name);
	const time_t now = time(NULL);
	struct revocation_trial t;
	char date[32] = "";

	if (p->list_why.code)
		row(k, "PROBLEM", what, "%s", p->list_why.msg);
	if (!p->list)
		return;
	if (!p->roots_pem)
		return row(k, "note", what, "not tried: the roots of istiod are not known");
	t = try_list(p, now);
	if (t.ends)
		date_of(t.ends, date);
	if (t.result == REVOCATION_ENDED)
		row(k, "PROBLEM", what, "it ended at %s: Envoys refuse all peers with it", date);
	else if (t.result == REVOCATION_FAILS)
		row(k, "PROBLEM", what, "Envoys refuse all peers below the roots of istiod: %s",
		    t.why.msg);
	else
		row(k, t.ends && t.warn_at <= now ? "note" : "ok", what, "it ends at %s",
		    t.ends ? date : "no time");
}

/* --- a first call --- */

static void check_call(struct check *k)
{
	struct err e;

	if (first_call_make(&e))
		row(k, "PROBLEM", "a first call", "%s", e.msg);
	else
		row(k, "ok", "a first call", "grpc works in the cage");
}

/* --- control planes --- */

static void answered(struct check *k)
{
	if (!--k->waiting)
		loop_stop(k->loop);
}

static void on_changed(void *ctx)
{
	struct plane *p = ctx;
	auto_free char *what = mem_printf("control plane %s", p->options->name);
	const char *why = pool_why_not(p->pool);

	if (p->said)
		return;
	if (pool_connected(p->pool))
		row(p->check, "ok", what, "%s is %s", p->options->address, p->options->server_name);
	else if (*why)
		row(p->check, "PROBLEM", what, "%s", why);
	else
		return;
	p->said = true;
	answered(p->check);
}

static void dial(struct check *k, struct plane *p)
{
	p->pool = pool_new(k->loop, k->rpc, p->options, on_changed, p);
	k->waiting++;
	pool_connect(p->pool, p->roots_pem);
}

static void on_late(void *ctx)
{
	struct check *k = ctx;

	for (size_t i = 0; i < k->config->nplanes; i++)
		if (k->planes[i].pool && !k->planes[i].said)
			row(k, "PROBLEM", k->planes[i].options->name, "%s: no answer in %d s",
			    k->planes[i].options->address, ALL_MS / 1000);
	loop_stop(k->loop);
}

/* --- all of it --- */

static void connect_all(struct check *k)
{
	struct err e;

	k->loop = loop_new(&e);
	if (!k->loop) {
		row(k, "PROBLEM", "control planes", "%s", e.msg);
		return;
	}
	k->rpc = rpc_new(k->loop);
	for (size_t i = 0; i < k->config->nplanes; i++)
		if (!k->planes[i].lost)
			dial(k, &k->planes[i]);
	loop_timer_in(k->loop, &k->late, ALL_MS, on_late, k);
	if (k->waiting)
		loop_run(k->loop);
	loop_timer_stop(&k->late);
	for (size_t i = 0; i < k->config->nplanes; i++)
		pool_free(&k->planes[i].pool);
	rpc_free(&k->rpc);
	loop_free(&k->loop);
}

int worker_check(const struct config *c, int broker_fd)
{
	struct check k = {.config = c};
	struct err e;

	(void)log_set_levels("error", &e); /* rows say it */
	row(&k, "ok", "configuration", "%zu control plane%s; cage: %s", c->nplanes,
	    c->nplanes == 1 ? "" : "s", cage_describe());
	for (size_t i = 0; i < c->nplanes; i++) {
		k.planes[i].check = &k;
		k.planes[i].options = &c->planes[i];
	}
	hear_files(&k, broker_fd);
	for (size_t i = 0; i < c->nplanes; i++)
		check_roots(&k, &k.planes[i]);
	for (size_t i = 0; i < c->nplanes; i++)
		check_list(&k, &k.planes[i]);
	check_call(&k);
	if (c->connect)
		connect_all(&k);
	for (size_t i = 0; i < c->nplanes; i++) {
		free(k.planes[i].roots_pem);
		revocation_unref(&k.planes[i].list);
	}
	return k.problems > 0;
}
