/* store.c - one table of fields, written and read in its order.
 *
 * read: version -> digest -> each field's line -> the sizes fill the rest -> written again it must
 * be the same bytes, so no spelling of a value has to be thought of here.
 */
#include "store.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
	SIZE_MAX_BYTES = 1 << 20,
	HEAD_MAX = 4096,
	DIGEST_TEXT = 2 * X509_SHA256_SIZE,
	VALUE_MAX = 1024,
};
static const int64_t number_max = 1000000000000000; /* ms: 30,000 years */

static const char version_line[] = "version: 1\n", version_key[] = "version: ";
static const char digest_key[] = "sha256: ";

enum kind { TEXT, NUMBER, SHARE, KEY_TYPE, BOOLEAN, POD, SIZES };

struct field {
	const char *name;
	enum kind kind;
	size_t at, room; /* TEXT: with its NUL */
	bool names;      /* the entry */
};

#define AT(f) offsetof(struct cert_stored, f)
#define TEXT_AT(f) TEXT, AT(f), sizeof(((struct cert_stored *)0)->f)
static const struct field fields[] = {
    {"control_plane", TEXT_AT(origin.name), true},
    {"control_plane_address", TEXT_AT(origin.address), true},
    {"control_plane_trust_domain", TEXT_AT(origin.trust_domain), true},
    {"trust_domain", TEXT_AT(spec.trust_domain), true},
    {"namespace", TEXT_AT(spec.ns), true},
    {"service_account", TEXT_AT(spec.sa), true},
    {"key_type", KEY_TYPE, AT(spec.key.type), 0, true},
    {"pkcs8", BOOLEAN, AT(spec.key.pkcs8), 0, true},
    {"cert_signer", TEXT_AT(spec.cert_signer), true},
    {"ttl_s", NUMBER, AT(spec.ttl_s), 0, true},
    {"grace_ratio", SHARE, AT(spec.ratio), 0, true},
    {"grace_jitter", SHARE, AT(spec.jitter), 0, true},
    {"pod", POD, AT(spec.pod), 0, true},
    {"issued_ms", NUMBER, AT(issued_ms), 0, false},
    {"issued_uptime_ms", NUMBER, AT(issued_uptime_ms), 0, false},
    {"renew_at_ms", NUMBER, AT(renew_at_ms), 0, false},
    {"element_bytes", SIZES, 0, 0, false},
};
enum { FIELDS = sizeof(fields) / sizeof(*fields) };

static const char *const key_types[] = {
    [X509_EC_P256] = "EC-P256",
    [X509_EC_P384] = "EC-P384",
    [X509_RSA_2048] = "RSA-2048",
    [X509_RSA_3072] = "RSA-3072",
    [X509_RSA_4096] = "RSA-4096",
};
enum { KEY_TYPES = sizeof(key_types) / sizeof(*key_types) };

/* --- writing --- */

static void write_sizes(FILE *f, const struct cert_stored *s)
{
	fprintf(f, "%zu", strlen(s->key_pem));
	for (size_t i = 0; i < s->n; i++)
		fprintf(f, " %zu", s->element_size[i]);
}

static void write_field(FILE *f, const struct cert_stored *s, const struct field *field)
{
	const void *at = (const char *)s + field->at;
	char uid[UUID_TEXT_SIZE];

	fprintf(f, "%s: ", field->name);
	switch (field->kind) {
	case TEXT:
		fputs(at, f);
		break;
	case NUMBER:
		fprintf(f, "%" PRId64, *(const int64_t *)at);
		break;
	case SHARE: /* every bit of it */
		fprintf(f, "%a", *(const double *)at);
		break;
	case KEY_TYPE:
		fputs(key_types[*(const enum x509_key_type *)at], f);
		break;
	case BOOLEAN:
		fputs(*(const bool *)at ? "true" : "false", f);
		break;
	case POD:
		uuid_format(at, uid);
		fputs(uid, f);
		break;
	case SIZES:
		write_sizes(f, s);
	}
	fputc('\n', f);
}

/* The fields; no secret is among them. */
static char *write_head(const struct cert_stored *s, bool names_only)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		abort();
	for (unsigned i = 0; i < FIELDS; i++)
		if (fields[i].names || !names_only)
			write_field(f, s, &fields[i]);
	if (fclose(f))
		abort();
	return text;
}

static void write_digest(const char *data, size_t size, char out[DIGEST_TEXT + 1])
{
	uint8_t digest[X509_SHA256_SIZE];

	x509_sha256(data, size, digest);
	for (int i = 0; i < X509_SHA256_SIZE; i++)
		snprintf(out + 2 * (ptrdiff_t)i, 3, "%02x", digest[i]);
}

void cert_store_id(
    const struct cert_origin *o, const struct cert_spec *spec, uint8_t id[X509_SHA256_SIZE])
{
	const struct cert_stored s = {.origin = *o, .spec = *spec};
	auto_free char *names = write_head(&s, true);

	x509_sha256(names, strlen(names), id);
}

/* Where what is digested begins. */
static size_t body_at(void)
{
	return strlen(version_line) + strlen(digest_key) + DIGEST_TEXT + 1;
}

char *cert_store_write(const struct cert_stored *s, size_t *size)
{
	auto_free char *head = write_head(s, false);
	char digest[DIGEST_TEXT + 1];
	size_t start = body_at(),
	       body = strlen(head) + 1 + strlen(s->key_pem) + strlen(s->chain_pem);
	char *text, *at;

	*size = start + body;
	if (*size > SIZE_MAX_BYTES)
		return NULL;
	text = mem_zalloc(*size + 1);
	at = stpcpy(text + start, head);
	*at++ = '\n';
	stpcpy(stpcpy(at, s->key_pem), s->chain_pem);
	write_digest(text + start, body, digest);
	at = stpcpy(stpcpy(stpcpy(text, version_line), digest_key), digest);
	*at = '\n';
	return text;
}

/* --- reading --- */

static int damaged(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID, "damaged: %s", what);
}

static bool read_text(char *out, size_t room, const char *value)
{
	size_t n = strlen(value);

	if (n >= room)
		return false;
	memcpy(out, value, n + 1);
	return true;
}

static bool read_number(int64_t *out, const char *value)
{
	char *end;

	errno = 0;
	*out = strtoll(value, &end, 10);
	return !errno && !*end && *out >= 0 && *out <= number_max;
}

static bool read_share(double *out, const char *value)
{
	char *end;

	*out = strtod(value, &end);
	return !*end && isfinite(*out) && *out >= 0 && *out <= 1;
}

static bool read_key_type(enum x509_key_type *out, const char *value)
{
	for (int i = 0; i < KEY_TYPES; i++) {
		*out = (enum x509_key_type)i;
		if (!strcmp(key_types[i], value))
			return true;
	}
	return false;
}

/* Sizes of the key and of each element, which fill the rest exactly. */
static bool read_sizes(struct cert_stored *s, const char *value, size_t *key_size)
{
	char *end;

	*key_size = strtoull(value, &end, 10);
	for (s->n = 0; *end && s->n < CERT_ELEMENTS_MAX; s->n++) {
		s->element_size[s->n] = strtoull(end, &end, 10);
		if (s->element_size[s->n] > SIZE_MAX_BYTES)
			return false;
	}
	return !*end && *key_size <= SIZE_MAX_BYTES;
}

static bool read_value(
    struct cert_stored *s, const struct field *f, const char *value, size_t *key_size)
{
	void *at = (char *)s + f->at;

	switch (f->kind) {
	case TEXT:
		return read_text(at, f->room, value);
	case NUMBER:
		return read_number(at, value);
	case SHARE:
		return read_share(at, value);
	case KEY_TYPE:
		return read_key_type(at, value);
	case BOOLEAN:
		*(bool *)at = !strcmp(value, "true");
		return true;
	case POD:
		return uuid_parse(at, value);
	case SIZES:
		return read_sizes(s, value, key_size);
	}
	return false;
}

static bool is_known(const char *name)
{
	for (unsigned i = 0; i < FIELDS; i++)
		if (!strcmp(fields[i].name, name))
			return true;
	return false;
}

/* One line "name: value"; a name that we do not know is of another release. */
static int read_line(
    struct cert_stored *s, const struct field *f, const char **at, size_t *key_size, struct err *e)
{
	char line[VALUE_MAX], printable[80];
	const char *end = strchr(*at, '\n');
	char *value;

	if (!end || (size_t)(end - *at) >= sizeof(line))
		return damaged(e, "a line has no end");
	memcpy(line, *at, (size_t)(end - *at));
	line[end - *at] = '\0';
	*at = end + 1;
	if (!(value = strstr(line, ": ")))
		return damaged(e, "a line has no value");
	*value = '\0';
	value += 2;
	if (!is_known(line)) {
		err_printable(printable, sizeof(printable), line, (unsigned)strlen(line));
		return err_set(
		    e, EPROTONOSUPPORT, "\"%s\" belongs to another release of agentd", printable);
	}
	if (strcmp(line, f->name) != 0 || !read_value(s, f, value, key_size))
		return damaged(e, f->name);
	return 0;
}

/* The digest is right, so what is wrong from here on was written so. */
static int read_body(struct cert_stored *s, const char *at, const char *end, struct err *e)
{
	size_t key_size = 0, sum = 0;

	for (unsigned i = 0; i < FIELDS; i++)
		if (read_line(s, &fields[i], &at, &key_size, e))
			return -1;
	if (*at != '\n') {
		const char *colon = strchr(at, ':');
		char name[80];
		err_printable(name, sizeof(name), at, colon ? (unsigned)(colon - at) : 0);
		return err_set(
		    e, EPROTONOSUPPORT, "\"%s\" belongs to another release of agentd", name);
	}
	at++;
	for (size_t i = 0; i < s->n; i++)
		sum += s->element_size[i];
	if (key_size + sum != (size_t)(end - at))
		return damaged(e, "sizes");
	s->key_pem = secret_new(at, key_size);
	s->chain_pem = mem_zalloc(sum + 1);
	memcpy(s->chain_pem, at + key_size, sum);
	return 0;
}

static int read_version(const char *text, struct err *e)
{
	char printable[24];
	size_t n;

	if (!strncmp(text, version_line, strlen(version_line)))
		return 0;
	if (strncmp(text, version_key, strlen(version_key)) != 0)
		return damaged(e, "no version");
	text += strlen(version_key);
	n = strspn(text, "0123456789");
	if (!n || n > 6 || text[n] != '\n' || *text == '0')
		return damaged(e, "version");
	err_printable(printable, sizeof(printable), text, (unsigned)n);
	return err_set(
	    e, EPROTONOSUPPORT, "version %s belongs to a newer release of agentd", printable);
}

static int read_all(struct cert_stored *s, const char *text, size_t size, struct err *e)
{
	char digest[DIGEST_TEXT + 1];
	const char *at = text + strlen(version_line);
	char *again;
	size_t again_size;

	if (read_version(text, e))
		return -1;
	if (size <= body_at() || strlen(text) != size)
		return damaged(e, "too short");
	write_digest(text + body_at(), size - body_at(), digest);
	if (strncmp(at, digest_key, strlen(digest_key)) != 0 ||
	    strncmp(at + strlen(digest_key), digest, DIGEST_TEXT) != 0)
		return damaged(e, "its checksum is wrong");
	if (read_body(s, text + body_at(), text + size, e))
		return -1;
	again = cert_store_write(s, &again_size);
	bool same = again && again_size == size && !memcmp(again, text, size);
	mem_wipe_free(again);
	return same ? 0 : damaged(e, "spelling");
}

int cert_store_read(struct cert_stored *s, const char *text, size_t size, struct err *e)
{
	char *own;
	int rc;

	memset(s, 0, sizeof(*s)); /* padding too: the spec is compared as bytes */
	if (size > SIZE_MAX_BYTES)
		return damaged(e, "larger than 1 MiB");
	own = mem_zalloc(size + 1); /* strings end */
	memcpy(own, text, size);
	rc = read_all(s, own, size, e);
	explicit_bzero(own, size);
	free(own);
	if (rc)
		cert_stored_clear(s);
	return rc;
}

void cert_stored_clear(struct cert_stored *s)
{
	secret_free(s->key_pem);
	free(s->chain_pem);
	s->key_pem = s->chain_pem = NULL;
}

struct cert_stored *cert_stored_take(struct cert_stored *s)
{
	struct cert_stored *own = mem_zalloc(sizeof(*own));

	*own = *s;
	s->key_pem = s->chain_pem = NULL;
	return own;
}
