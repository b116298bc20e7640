/* ceiling.c - see ceiling.h: a list of words, from the command line or from root's file. */
#include "ceiling.h"
#include "broker/base/file.h"
#include "broker/kubelet/pod_source.h"
#include "common/flags.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_SIZE = 512, PORT_MAX = 65535, DIGITS_MAX = 10 };

static const uint32_t id_max = UINT32_MAX - 1;

/* Under the names that manifests have. */
#define FIELD(f) offsetof(struct redirect_ceiling, f)
static const struct number {
	const char *key;
	size_t field;
	uint32_t usual;
} numbers[] = {
    {"proxy_uid", FIELD(proxy_uid), 1337},
    {"proxy_gid", FIELD(proxy_gid), 1337},
    {"envoy_port", FIELD(envoy_port), 15001},
    {"inbound_capture_port", FIELD(inbound_capture_port), 15006},
    {"inbound_tunnel_port", FIELD(inbound_tunnel_port), 15008},
    {"dns_port", FIELD(dns_port), 15053},
    {"status_port", FIELD(status_port), 15020},
};
enum { NNUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static uint32_t *field_of(struct redirect_ceiling *c, const struct number *n)
{
	return (uint32_t *)(void *)((char *)c + n->field);
}

static const struct number *find_number(const char *key, size_t size)
{
	for (int i = 0; i < NNUMBERS; i++)
		if (strlen(numbers[i].key) == size && !strncmp(key, numbers[i].key, size))
			return &numbers[i];
	return NULL;
}

/* KEY=NUMBER.  False: it is none. */
static bool read_number(struct redirect_ceiling *c, const char *word, size_t size)
{
	const char *end = word + size, *equals = memchr(word, '=', size);
	const struct number *n = equals ? find_number(word, (size_t)(equals - word)) : NULL;
	size_t digits = n ? strspn(equals + 1, "0123456789") : 0;
	unsigned long long value;

	if (!digits || digits > DIGITS_MAX || equals + 1 + digits != end)
		return false;
	value = strtoull(equals + 1, NULL, 10);
	*field_of(c, n) = (uint32_t)value;
	return value && value <= (strstr(n->key, "_port") ? PORT_MAX : id_max);
}

static bool is_word(const char *word, size_t size, const char *wanted)
{
	return size == strlen(wanted) && !strncmp(word, wanted, size);
}

static bool is_gone(const char *word, size_t size)
{
	return is_word(word, size, "accelerate") || is_word(word, size, "accelerate-node") ||
	       is_word(word, size, "accelerate-no-fionread");
}

int redirect_ceiling_read(const char *allow, struct redirect_ceiling *c, struct err *e)
{
	*c = (struct redirect_ceiling){.worker_uid = c->worker_uid};
	for (int i = 0; i < NNUMBERS; i++)
		*field_of(c, &numbers[i]) = numbers[i].usual;
	for (const char *at = allow ? allow : "strict"; *at;) {
		size_t n = strcspn(at, ",");
		if (is_word(at, n, "permissive"))
			c->permissive = true;
		else if (is_word(at, n, "exclusions"))
			c->exclusions = true;
		else if (is_word(at, n, "probes"))
			c->probes = true;
		else if (is_gone(at, n))
			return err_set(e, ERR_INVALID,
			    "--redirect-allow has \"%.*s\", which must go: " FLAGS_ACCELERATE_GONE,
			    (int)n, at);
		else if (!is_word(at, n, "strict") && !read_number(c, at, n))
			return err_set(e, ERR_INVALID,
			    "--redirect-allow takes strict, permissive, exclusions, probes and "
			    "KEY=NUMBER, not \"%.*s\"",
			    (int)n, at);
		at += n + (at[n] == ',');
	}
	return 0;
}

int redirect_ceiling_of(const struct broker_options *o, const struct redirect_ceiling *node,
    const struct uuid *pod, struct redirect_ceiling *out, struct err *e)
{
	char uid[UUID_TEXT_SIZE], list[LIST_SIZE];
	const struct broker_place at = {.dir = o->manifests, .sub = uid, .name = "redirect-allow"};
	struct err why;

	*out = *node;
	uuid_format(pod, uid);
	if (o->manifests && !broker_file_line(&at, list, sizeof(list), &why)) {
		if (redirect_ceiling_read(list, out, &why))
			return err_set(
			    e, EINVAL, "%s/%s/%s: %s", o->manifests, uid, at.name, why.msg);
	} else if (o->manifests && why.code != ENOENT) {
		*e = why;
		return -1;
	}
	out->is_manifests = pod_source_is_manifest(o, pod);
	return 0;
}
