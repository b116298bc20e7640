/* crl_fuzz.c - what becomes of a file of revocation lists, one content after the other.
 *
 * Each content: a byte, its kind; two bytes, its length; the bytes.  Whatever they are: what is
 * refused changes nothing, and says why; what is in force is the lists of the file, byte for byte
 * and in their order, and nothing else; it is told when it changes, and only then.
 */
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
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
enum { HEAD = 3 };

static struct {
	link_changed told;
	void *ctx;
	unsigned changes;
	const char *last;
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

/* --- laws --- */

static void on_changed(void *ctx, const char *pem)
{
	(void)ctx;
	file.changes++;
	file.last = pem;
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

static void check_taken(const char *text, size_t size, const char *pem)
{
	struct evbuffer *of_file = lists_of(text, size), *in_force = lists_of(pem, strlen(pem));
	struct err e;
	struct revocation *again = revocation_read(pem, strlen(pem), &e);

	must(evbuffer_get_length(in_force) > 0 && same(of_file, in_force));
	must(!again || !strcmp(revocation_pem(again), pem)); /* it can be over the limit that its source kept */
	for (const char *at = pem; (at = strstr(at, "-----BEGIN ")); at++)
		must(!strncmp(at, "-----BEGIN X509 CRL-----\n", 25));
	revocation_unref(&again);
	evbuffer_free(of_file);
	evbuffer_free(in_force);
}

static bool is_refused(const struct crl *c)
{
	json_t *o = crl_dump(c);
	const char *why = json_string_value(json_object_get(o, "why_not"));
	bool refused = *why;

	must(json_is_true(json_object_get(o, "present")) == (crl_pem(c) != NULL));
	for (; *why; why++)
		must(*why >= ' ' && *why <= '~');
	json_decref(o);
	return refused;
}

static void tell(struct crl *c, const struct link_content *content)
{
	auto_free char *before = mem_strdup(crl_pem(c));
	unsigned changes = file.changes;
	const char *now;

	file.told(file.ctx, content);
	now = crl_pem(c);
	must(file.changes - changes ==
	     (unsigned)(before && now ? strcmp(before, now) != 0 : before != now));
	must(file.changes == changes || file.last == now);
	must(!ERR_peek_error());
	if (is_refused(c))
		must(file.changes == changes);
	else if (content->data)
		check_taken(content->data, content->size, now);
	else
		must(!now && content->e->code == ENOENT);
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
	struct crl *c;

	log_set_levels("error", NULL);
	file.changes = 0;
	file.last = NULL;
	c = crl_new(NULL, 0, "istiod", on_changed, NULL);
	while (size >= HEAD) {
		size_t n = data[1] | (size_t)data[2] << 8, left = size - HEAD;

		n = n < left ? n : left;
		tell_content(c, data[0] % KINDS, data + HEAD, n);
		data += HEAD + n;
		size = left - n;
	}
	crl_free(&c);
	return 0;
}
