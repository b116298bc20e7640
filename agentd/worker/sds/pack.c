/* pack.c - see pack.h.
 *
 * File names: Envoy 1.40 watches the directory of each file for renames (a Kubernetes ..data swap
 * and rename-over are followed, files may appear later; measured), so watched_directory is left
 * out.  A file rewritten in place is not noticed, nor is a directory that did not exist at first.
 * Envoy reads files anew that a push names otherwise, and only then: so each state of a file has a
 * spelling of its path.
 */
#include "pack.h"
#include "common/mem.h"
#include "envoy/extensions/transport_sockets/tls/v3/secret.pb-c.h"
#include "envoy/service/discovery/v3/discovery.pb-c.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Short names for what protobuf-c makes of Envoy's packages. */
#define pb_source Envoy__Config__Core__V3__DataSource
#define pb_pair Envoy__Extensions__TransportSockets__Tls__V3__TlsCertificate
#define pb_roots Envoy__Extensions__TransportSockets__Tls__V3__CertificateValidationContext
#define pb_secret Envoy__Extensions__TransportSockets__Tls__V3__Secret
#define pb_sotw Envoy__Service__Discovery__V3__DiscoveryResponse
#define pb_delta Envoy__Service__Discovery__V3__DeltaDiscoveryResponse
#define pb_resource Envoy__Service__Discovery__V3__Resource

/* --- what there is --- */

static const char *roots_of(const struct sds_material *m)
{
	return m->roots ? m->roots : m->cert->root_pem;
}

/* FNV-1a: tells contents apart, protects nothing. */
static uint64_t hash(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (uint8_t)*text) * 0x100000001b3;
	return h;
}

void sds_pack_hash(struct sds_material *m)
{
	uint64_t h = 0xcbf29ce484222325;

	if (!m->cert)
		return;
	h = hash(h, roots_of(m));
	h = hash(h, m->crl ? m->crl : "");
	snprintf(m->root_version, sizeof(m->root_version), "%016" PRIx64, h);
}

const char *sds_pack_version(const struct sds_material *m, const struct sds_name *n, int64_t now_s)
{
	if (sds_names_is_file(n))
		return n->version;
	if (!m->cert)
		return "";
	if (n->kind == SDS_ROOT)
		return m->root_version;
	/* An event reports its end, but a request may come first when the machine wakes up. */
	return now_s >= m->cert->leaf.not_after ? "" : m->cert->leaf.serial;
}

/* --- one secret --- */

enum { SPELLED_BITS = 32, SPELLED_SIZE = 2 * SPELLED_BITS + 1 };

/* The same directory again and again, as "/" or "/.", by the bits of what was seen. */
static char *spell(const char *path, uint64_t seen)
{
	char again[SPELLED_SIZE] = "";
	size_t n = 0;

	for (unsigned bit = 0; seen && bit < SPELLED_BITS; bit++) {
		again[n++] = '/';
		if ((seen ^ seen >> SPELLED_BITS) >> bit & 1)
			again[n++] = '.';
	}
	return mem_printf("%s%s", again, path);
}

static pb_source file_source(const char *path)
{
	pb_source d = ENVOY__CONFIG__CORE__V3__DATA_SOURCE__INIT;

	d.specifier_case = ENVOY__CONFIG__CORE__V3__DATA_SOURCE__SPECIFIER_FILENAME;
	d.filename = (char *)path;
	return d;
}

static pb_source inline_source(const char *pem)
{
	pb_source d = ENVOY__CONFIG__CORE__V3__DATA_SOURCE__INIT;

	d.specifier_case = ENVOY__CONFIG__CORE__V3__DATA_SOURCE__SPECIFIER_INLINE_BYTES;
	d.inline_bytes = (ProtobufCBinaryData){.len = strlen(pem), .data = (uint8_t *)pem};
	return d;
}

static struct sds_packed pack(const ProtobufCMessage *m)
{
	struct sds_packed out = {.len = protobuf_c_message_get_packed_size(m)};

	out.bytes = mem_zalloc(out.len + 1);
	protobuf_c_message_pack(m, out.bytes);
	return out;
}

void sds_pack_wipe(struct sds_packed *p)
{
	explicit_bzero(p->bytes, p->len);
	free(p->bytes);
	*p = (struct sds_packed){0};
}

static struct sds_packed pack_roots(const struct sds_material *m, const struct sds_name *n)
{
	pb_secret secret = ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__SECRET__INIT;
	pb_roots roots =
	    ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__CERTIFICATE_VALIDATION_CONTEXT__INIT;
	bool file = sds_names_is_file(n);
	auto_free char *path = file ? spell(n->path, n->seen) : NULL;
	pb_source ca = file ? file_source(path) : inline_source(roots_of(m));
	pb_source crl = inline_source(m->crl ? m->crl : "");

	secret.name = n->text;
	secret.type_case =
	    ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__SECRET__TYPE_VALIDATION_CONTEXT;
	secret.validation_context = &roots;
	roots.trusted_ca = &ca;
	roots.crl = !file && m->crl ? &crl : NULL;
	return pack(&secret.base);
}

static struct sds_packed pack_pair(const struct sds_material *m, const struct sds_name *n)
{
	pb_secret secret = ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__SECRET__INIT;
	pb_pair pair = ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__TLS_CERTIFICATE__INIT;
	bool file = sds_names_is_file(n);
	auto_free char *path = file ? spell(n->path, n->seen) : NULL;
	auto_free char *key_path = file ? spell(n->key_path, n->seen) : NULL;
	pb_source chain = file ? file_source(path) : inline_source(m->cert->chain_pem);
	pb_source key = file ? file_source(key_path) : inline_source(m->cert->key_pem);

	secret.name = n->text;
	secret.type_case =
	    ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__SECRET__TYPE_TLS_CERTIFICATE;
	secret.tls_certificate = &pair;
	pair.certificate_chain = &chain;
	pair.private_key = &key;
	return pack(&secret.base);
}

static struct sds_packed pack_secret(const struct sds_material *m, const struct sds_name *n)
{
	bool root = n->kind == SDS_ROOT || n->kind == SDS_FILE_ROOT;

	return root ? pack_roots(m, n) : pack_pair(m, n);
}

/* --- a response --- */

/* One secret in the form of both flavours. */
struct part {
	struct sds_packed secret;
	Google__Protobuf__Any any;
	pb_resource resource;
};

static void fill(struct part *p, const struct sds_item *item)
{
	p->secret = pack_secret(item->material, item->name);
	google__protobuf__any__init(&p->any);
	p->any.type_url = TYPE_SECRET;
	p->any.value = (ProtobufCBinaryData){.len = p->secret.len, .data = p->secret.bytes};
	envoy__service__discovery__v3__resource__init(&p->resource);
	p->resource.name = item->name->text;
	p->resource.version = (char *)item->version;
	p->resource.resource = &p->any;
}

struct sds_packed sds_pack(const struct sds_response *r)
{
	pb_sotw sotw = ENVOY__SERVICE__DISCOVERY__V3__DISCOVERY_RESPONSE__INIT;
	pb_delta delta = ENVOY__SERVICE__DISCOVERY__V3__DELTA_DISCOVERY_RESPONSE__INIT;
	auto_free struct part *parts = mem_zalloc((r->n + 1) * sizeof(*parts));
	auto_free Google__Protobuf__Any **anys = mem_zalloc((r->n + 1) * sizeof(void *));
	auto_free pb_resource **resources = mem_zalloc((r->n + 1) * sizeof(void *));
	struct sds_packed out;

	for (size_t i = 0; i < r->n; i++) {
		fill(&parts[i], &r->items[i]);
		anys[i] = &parts[i].any;
		resources[i] = &parts[i].resource;
	}
	/* SotW has one version for all resources; Envoy has one stream per name. */
	sotw.version_info = delta.system_version_info = (char *)(r->n ? r->items[0].version : "");
	sotw.type_url = delta.type_url = TYPE_SECRET;
	sotw.nonce = delta.nonce = (char *)r->nonce;
	sotw.n_resources = delta.n_resources = r->n;
	sotw.resources = anys;
	delta.resources = resources;
	out = pack(r->flavour == DISCOVERY_SOTW ? &sotw.base : &delta.base);
	for (size_t i = 0; i < r->n; i++)
		sds_pack_wipe(&parts[i].secret);
	return out;
}
