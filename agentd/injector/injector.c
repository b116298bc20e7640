/* injector.c - the files are read -> the server has a certificate, the reviews a configuration ->
 * a file changes -> what its content makes takes the place of what was, or the log says why not.
 */
#include "injector.h"

#include <event2/buffer.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/version.h"
#include "connections.h"
#include "follow.h"
#include "inject/config.h"
#include "inject/stream.h"
#include "options.h"
#include "review.h"
#include "rule.h"
#include "server.h"
#include "tls.h"

LOG_SCOPE("injector");

/* Questions that are being answered keep theirs. */
struct config {
	struct inject_config *is;
	unsigned users; /* the injector is one */
};

struct injector {
	struct loop *loop;
	const struct options *options;
	struct follow *follow;
	struct server *server;
	struct config *config;
	json_t *config_said; /* what the files said last, right or wrong */
	/* The same of the certificate and its key: SHA-256 */
	unsigned char pair_said[EVP_MAX_MD_SIZE];
	struct metric *admissions, *seconds, *patch_bytes, *current;
	struct log_budget refused, malformed;
};

/* --- a review --- */

static void say(struct injector *i, const struct review *r)
{
	if (r->result == REVIEW_REFUSED)
		log_warn_limited(&i->refused, r->pod, "refused: %s", r->why);
	else if (r->result == REVIEW_MALFORMED)
		log_warn_limited(&i->malformed, NULL, "a request was no review: %s", r->why);
	else
		log_debug(r->pod, "%s: %s", review_words[r->result], r->why);
}

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static void leave_config(struct config **cp)
{
	struct config *c = take(*cp);

	if (!c || --c->users)
		return;
	inject_config_free(&c->is);
	free(c);
}

/* A question, and what answers it: the configuration of the moment it came. */
struct question {
	struct config *config;
	struct review review;
	int64_t began_us;
};

static void *on_begin(void *ctx)
{
	struct injector *i = ctx;
	struct question *q = mem_zalloc(sizeof(*q));

	q->config = i->config;
	q->config->users++;
	q->began_us = now_us();
	return q;
}

static int on_review(void *held, const char *body, size_t len, struct evbuffer *out)
{
	struct question *q = held;

	review_answer(&q->review, q->config->is, body, len);
	evbuffer_add(out, q->review.text, strlen(q->review.text));
	free(q->review.text);
	return q->review.status;
}

/* Of one that was never handled there is nothing to say. */
static void on_end(void *ctx, void *held)
{
	struct injector *i = ctx;
	struct question *q = held;
	char labels[64];

	leave_config(&q->config);
	if (q->review.status) {
		say(i, &q->review);
		metric_add(i->admissions,
		    metric_labels(
			labels, sizeof(labels), "result", review_words[q->review.result], NULL),
		    1);
		metric_add(i->patch_bytes, "", (double)q->review.patch_size);
		metric_observe(i->seconds, "", (double)(now_us() - q->began_us) / 1e6);
	}
	free(q);
}

/* --- files --- */

/* `part` of them is what the files say (1), or was refused. */
static int note(struct injector *i, const char *part, int rc, const struct err *e)
{
	char labels[64];

	metric_set(
	    i->current, metric_labels(labels, sizeof(labels), "files", part, NULL), rc ? 0 : 1);
	if (rc)
		log_error(NULL, "%s: nothing is changed: %s", part, e->msg);
	else
		log_info(NULL, "%s: in force", part);
	return rc;
}

static json_t *read_document(const char *path, struct err *e)
{
	size_t len;
	auto_free char *text = follow_read(path, &len, e);
	json_t *v = text ? inject_read(text, len, e) : NULL;

	if (text && !v)
		err_wrap(e, "%s", path);
	return v;
}

/* A part that has a file of its own wins. */
static int read_part(json_t *all, const char *key, const char *path, struct err *e)
{
	json_t *v = path ? read_document(path, e) : NULL;

	if (v && json_object_set_new(all, key, v))
		return err_set(e, ERR_INVALID, "must be a map of values, meshConfig, agentd");
	return path && !v ? -1 : 0;
}

static json_t *read_config(const struct options *o, struct err *e)
{
	json_t *all = o->config ? read_document(o->config, e) : json_object();

	if (all &&
	    (read_part(all, "values", o->values, e) || read_part(all, "meshConfig", o->mesh, e)))
		json_decref(take(all));
	return all;
}

static int take_config(struct injector *i, json_t *all, struct err *e)
{
	struct inject_config *c = inject_config_of(all, e);

	if (!c || rule_check(c, e)) {
		inject_config_free(&c);
		return i->options->config ? err_wrap(e, "%s", i->options->config) : -1;
	}
	c->annotations = inject_at(c->values, "sidecarInjectorWebhook.injectedAnnotations");
	leave_config(&i->config);
	i->config = mem_zalloc(sizeof(*i->config));
	*i->config = (struct config){c, 1};
	return 0;
}

static int load_config(struct injector *i, struct err *e)
{
	json_t *all = read_config(i->options, e);
	int rc = 0;

	if (!all)
		return note(i, "configuration", -1, e);
	if (!json_equal(all, i->config_said))
		rc = note(i, "configuration", take_config(i, all, e), e);
	json_decref(i->config_said);
	i->config_said = all;
	return rc;
}

static int take_pair(struct injector *i, const char *chain, const char *key, struct err *e)
{
	const char *name = i->options->server_name;

	if (name && tls_check_name(chain, name, e))
		return err_wrap(e, "%s", i->options->tls_cert);
	if (server_certificate_set(i->server, chain, key, e))
		return err_wrap(e, "%s, %s", i->options->tls_cert, i->options->tls_key);
	return 0;
}

/* Is it another pair than the last one, right or wrong? */
static bool is_new_pair(struct injector *i, const char *chain, const char *key)
{
	char *both = mem_printf("%s\n%s", chain, key);
	unsigned char digest[EVP_MAX_MD_SIZE] = {0};
	bool is_new = true;

	if (EVP_Q_digest(NULL, "SHA256", NULL, both, strlen(both), digest, NULL))
		is_new = memcmp(digest, i->pair_said, sizeof(digest)) != 0;
	memcpy(i->pair_said, digest, sizeof(digest));
	mem_wipe_free(both);
	return is_new;
}

static int load_pair(struct injector *i, struct err *e)
{
	size_t len;
	auto_free char *chain = follow_read(i->options->tls_cert, &len, e);
	char *key = chain ? follow_read(i->options->tls_key, &len, e) : NULL;
	int rc = 0;

	if (!key)
		rc = note(i, "certificate", -1, e);
	else if (is_new_pair(i, chain, key))
		rc = note(i, "certificate", take_pair(i, chain, key, e), e);
	mem_wipe_free(key);
	return rc;
}

/* Set again even if it is the same: whoever was asked keeps his connection. */
static int load_clients(struct injector *i, struct err *e)
{
	size_t len;
	auto_free char *cas = follow_read(i->options->client_ca, &len, e);
	int rc = cas && !server_clients_set(i->server, cas, e) ? 0 : -1;

	return rc ? note(i, "client CA", err_wrap(e, "%s", i->options->client_ca), e) : 0;
}

static void on_changed(void *ctx)
{
	struct injector *i = ctx;
	struct err e;

	load_config(i, &e);
	if (i->options->tls_cert)
		load_pair(i, &e);
	if (i->options->client_ca)
		load_clients(i, &e);
}

static int follow_all(struct injector *i, struct err *e)
{
	const struct options *o = i->options;
	const char *const files[] = {
	    o->config, o->values, o->mesh, o->tls_cert, o->tls_key, o->client_ca};

	if (!(i->follow = follow_new(i->loop, on_changed, i, e)))
		return -1;
	for (unsigned k = 0; k < sizeof(files) / sizeof(*files); k++)
		if (files[k] && follow_add(i->follow, files[k], e))
			return -1;
	return 0;
}

/* --- its life --- */

static void make_metrics(struct injector *i)
{
	char labels[96];

	i->admissions = metric_counter("agentd_injector_admissions_total",
	    "Questions of API servers: injected, skipped, refused or malformed");
	i->seconds = metric_histogram(
	    "agentd_injector_admission_seconds", "Time from a question to its answer");
	i->patch_bytes = metric_counter("agentd_injector_patch_bytes_total", "Size of all patches");
	i->current = metric_gauge("agentd_injector_files_current",
	    "1: what the files say is in force; 0: it was refused, see the log");
	for (unsigned k = 0; k < REVIEW_RESULTS; k++)
		metric_add(i->admissions,
		    metric_labels(labels, sizeof(labels), "result", review_words[k], NULL), 0);
	metric_add(i->patch_bytes, "", 0);
	metric_set(metric_gauge("agentd_injector_build_info", "Version of agentd-injector"),
	    metric_labels(labels, sizeof(labels), "version", version_text, NULL), 1);
}

struct injector *injector_new(struct loop *l, const struct options *o, int listen_fd, struct err *e)
{
	struct injector *i = mem_zalloc(sizeof(*i));

	i->loop = l;
	i->options = o;
	make_metrics(i);
	i->server = server_new(l, listen_fd, &connections_usual,
	    &(struct server_handler){on_begin, on_review, on_end, i});
	if (follow_all(i, e) || load_config(i, e) || (o->tls_cert && load_pair(i, e)) ||
	    (o->client_ca && load_clients(i, e)))
		injector_free(&i);
	return i;
}

struct server *injector_server(struct injector *i)
{
	return i->server;
}

void injector_free(struct injector **injector)
{
	struct injector *i = take(*injector);

	if (!i)
		return;
	follow_free(&i->follow);
	server_free(&i->server);
	leave_config(&i->config);
	json_decref(i->config_said);
	free(i);
}
