/* crl_fuzz.c - what becomes of a file of revocation lists, one content after the other.
 *
 * Each content: a byte, its kind, and with its highest bit a day passes before; two bytes, its
 * length; the bytes.  Whatever they are: what can be read is the lists of the text, byte for byte
 * and in their order, and nothing else; what is in force was a content; without a problem it is the
 * last one; it is told when it changes, and only then.
 *
 * LINK: tests/fake/loop.c
 */
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "tests/fake/loop.h"
#include "worker/certs/cert_cache.h"
#include "worker/certs/crl.h"
#include "worker/crypto/revocation.h"
#include "worker/link/link.h"

#include <errno.h>
#include <event2/buffer.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum kind { TEXT, DER, TWICE, GONE, REFUSED, KINDS };
enum { HEAD = 3, DAY_PASSES = 0x80, DAY_MS = 24 * 3600 * 1000 };

/* It signed the lists of the seeds that are called so; its key is gone. */
static const char root[] = "-----BEGIN CERTIFICATE-----\n"
			   "MIIBIDCBxqADAgECAgEBMAoGCCqGSM49BAMCMA8xDTALBgNVBAMMBGZ1enowHhcN\n"
			   "MjMwMTAxMDAwMDAwWhcNMzMwMTAxMDAwMDAwWjAPMQ0wCwYDVQQDDARmdXp6MFkw\n"
			   "EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEZFW+eIuHdhAS6pS5T4TKmrXyPj1+TAOX\n"
			   "QXBbWhOJ7PqSlhzZcpT8wuDfu66NZ4YGn8KE3QfEmUt+XvMrLgU+oqMTMBEwDwYD\n"
			   "VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEA6WU3vSnPFtYanFJY9KYu\n"
			   "hLSSkIya1BMQJR/hkGEkZr8CIQCUmrLTItlUypsoxOULrHV5/QwXyyNB0e5e46MQ\n"
			   "L1rHWA==\n"
			   "-----END CERTIFICATE-----\n";

static struct {
	link_changed told;
	void *ctx;
	unsigned changes;
} file;

static void must(bool held)
{
	if (!held)
		abort();
}

/* --- the broker --- */

struct link_follow *link_follow(struct link *p, enum link_followed what, const struct uuid *pod,
    unsigned plane, link_changed told, void *ctx)
{
	(void)p, (void)pod, (void)plane;
	must(what == LINK_FOLLOW_CRL);
	file.told = told;
	file.ctx = ctx;
	return (struct link_follow *)&file;
}

void link_unfollow(struct link_follow **f)
{
	*f = NULL;
}

/* --- the cache: one certificate, the root itself --- */

void cert_cache_each(
    const struct cert_cache *c, void (*each)(void *ctx, const struct cert *cert), void *ctx)
{
	const struct cert one = {
	    .chain_pem = (char *)root, .element_size = {strlen(root)}, .root_pem = (char *)root};

	(void)c;
	each(ctx, &one);
}

/* --- laws --- */

static void on_changed(void *ctx)
{
	(void)ctx;
	file.changes++;
}

/* The DER of all lists of a text, by OpenSSL's own reader of whole files. */
static struct evbuffer *lists_of(const char *pem, size_t size)
{
	struct evbuffer *out = evbuffer_new();
	BIO *bio = BIO_new_mem_buf(pem, (int)size);
	X509_CRL *crl;

	while ((crl = PEM_read_bio_X509_CRL(bio, NULL, NULL, NULL))) {
		unsigned char *der = NULL;
		int n = i2d_X509_CRL(crl, &der);
		must(n > 0);
		evbuffer_add(out, der, (size_t)n);
		OPENSSL_free(der);
		X509_CRL_free(crl);
	}
	ERR_clear_error();
	BIO_free(bio);
	return out;
}

static bool same(struct evbuffer *a, struct evbuffer *b)
{
	size_t n = evbuffer_get_length(a);

	return evbuffer_get_length(b) == n &&
	       (!n || !memcmp(evbuffer_pullup(a, -1), evbuffer_pullup(b, -1), n));
}

static void check_read(const char *text, size_t size, const struct revocation *r)
{
	const char *pem = revocation_pem(r);
	struct evbuffer *of_file = lists_of(text, size), *read = lists_of(pem, strlen(pem));
	struct err e;
	struct revocation *again = revocation_read(pem, strlen(pem), &e);

	must(evbuffer_get_length(read) > 0 && same(of_file, read));
	/* It can be over the limit that its source kept. */
	must(!again || !strcmp(revocation_pem(again), pem));
	for (const char *at = pem; (at = strstr(at, "-----BEGIN ")); at++)
		must(!strncmp(at, "-----BEGIN X509 CRL-----\n", 25));
	revocation_unref(&again);
	evbuffer_free(of_file);
	evbuffer_free(read);
}

static void check_pages(const struct crl *c)
{
	static const char *const texts[] = {"why_not", "warning", "ends"};
	json_t *o = crl_dump(c);

	must(json_is_true(json_object_get(o, "present")) == (crl_in_force(c) != NULL));
	must(crl_has_problem(c) == (*json_string_value(json_object_get(o, "why_not")) != 0));
	for (unsigned i = 0; i < 3; i++)
		for (const char *at = json_string_value(json_object_get(o, texts[i])); *at; at++)
			must(*at >= ' ' && *at <= '~');
	must(!crl_ends(c) || crl_in_force(c));
	json_decref(o);
}

static const char *text_of(const struct crl *c)
{
	return crl_in_force(c) ? revocation_pem(crl_in_force(c)) : "";
}

static void tell(struct crl *c, const struct link_content *content)
{
	struct err e;
	auto_free char *before = mem_strdup(text_of(c));
	unsigned changes = file.changes;
	struct revocation *r =
	    content->data ? revocation_read(content->data, content->size, &e) : NULL;

	file.told(file.ctx, content);
	must(!ERR_peek_error());
	must(file.changes - changes == (unsigned)(strcmp(before, text_of(c)) != 0));
	if (r)
		check_read(content->data, content->size, r);
	must(!strcmp(text_of(c), before) || !*text_of(c) ||
	     (r && !strcmp(text_of(c), revocation_pem(r))));
	must(crl_has_problem(c) || !strcmp(text_of(c), r ? revocation_pem(r) : ""));
	must(content->data || content->e->code != ENOENT || !crl_in_force(c));
	check_pages(c);
	revocation_unref(&r);
}

/* --- contents --- */

static char *pem_of(const uint8_t *der, size_t size, unsigned times, size_t *len)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text, *out;

	while (times--)
		must(PEM_write_bio(bio, "X509 CRL", "", der, (long)size) > 0);
	*len = (size_t)BIO_get_mem_data(bio, &text);
	out = mem_zalloc(*len + 1);
	memcpy(out, text, *len);
	BIO_free(bio);
	return out;
}

static void tell_content(struct crl *c, enum kind kind, const uint8_t *bytes, size_t size)
{
	struct err gone, refused;
	auto_free char *text = NULL;

	err_set(&gone, ENOENT, "it is not there");
	err_set(&refused, EACCES, "others can write it");
	if (kind == TEXT) {
		text = mem_zalloc(size + 1);
		memcpy(text, bytes, size);
	} else if (kind == DER || kind == TWICE) {
		text = size ? pem_of(bytes, size, kind == TWICE ? 2 : 1, &size) : mem_strdup("");
	}
	tell(c, &(struct link_content){.name = "",
		    .data = text,
		    .size = text ? size : 0,
		    .e = text           ? NULL
			 : kind == GONE ? &gone
					: &refused});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct loop *loop;
	struct crl *c;

	log_set_levels("error", NULL);
	file.changes = 0;
	loop = fake_loop();
	c = crl_new(&(struct crl_options){.loop = loop, .name = "istiod"}, on_changed, NULL);
	while (size >= HEAD) {
		size_t n = data[1] | (size_t)data[2] << 8, left = size - HEAD;

		n = n < left ? n : left;
		if (data[0] & DAY_PASSES)
			fake_loop_advance(loop, DAY_MS);
		check_pages(c);
		tell_content(c, (data[0] & ~DAY_PASSES) % KINDS, data + HEAD, n);
		data += HEAD + n;
		size = left - n;
	}
	crl_free(&c);
	fake_loop_end(&loop);
	return 0;
}
