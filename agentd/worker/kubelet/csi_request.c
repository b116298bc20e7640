/* csi_request.c
 *
 * bytes -> fields, each bounded -> what must be there is -> the target path names pod and volume ->
 * the kubelet's keys name the pod, and the same one -> the rest of volume_context is the pod's
 * environment -> the token, of `secrets` if one is there: a pod can write into volume_context when
 * the kubelet does not use it for that (kubelet-csi.md 3b).
 */
#include "csi_request.h"
#include "base/pbwire.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "mesh/env.h"
#include "mesh/identity.h"
#include "worker/crypto/token.h"
#include <stdio.h>
#include <string.h>

/* Of volume_context: 256 of the pod's (security-rules.md 3) and the kubelet's. */
enum { ENTRIES_MAX = 256 + 16, PATH_MAX_SIZE = 4096, TOKENS_MAX = 4 * TOKEN_SIZE_MAX };

#define KUBELET "csi.storage.k8s.io/"
#define TOKENS KUBELET "serviceAccount.tokens"
#define AUDIENCE "istio-ca"

struct reader {
	struct csi_publish *out;
	char *target_path;
	json_t *context; /* volume_context without tokens */
	unsigned entries;
	char *tokens, *secret_tokens; /* secret: of volume_context, of secrets */
	bool capability, block;
};

/* --- the wire --- */

static int malformed(struct err *e)
{
	err_set(e, ERR_INVALID, "the request is not a message of csi.v1");
	return -1; /* for the analyzer, too */
}

/* NULL: too long, not UTF-8, or with a NUL. */
static char *text_of(const struct pbwire_field *f, size_t max)
{
	char *text;

	if (f->type != PBWIRE_BYTES || f->bytes.left > max)
		return NULL;
	text = mem_zalloc(f->bytes.left + 1);
	if (!pbwire_string(f->bytes, text, f->bytes.left + 1))
		return text;
	free(text);
	return NULL;
}

static int read_id(char *out, const struct pbwire_field *f, struct err *e)
{
	if (f->type != PBWIRE_BYTES || pbwire_string(f->bytes, out, CSI_ID_SIZE))
		return err_set(e, ERR_INVALID, "volume_id: must be text of at most 128 bytes");
	return 0;
}

/* Another spelling of a path may end as a pod's does, and lead elsewhere. */
static bool is_plain(const char *path)
{
	for (const char *part = path; *part; part += strcspn(part, "/")) {
		size_t n;

		if (*part++ != '/')
			return false;
		n = strcspn(part, "/");
		if (!n || (n <= 2 && strspn(part, ".") >= n))
			return false;
	}
	return true;
}

static int read_path(char **out, const struct pbwire_field *f, struct err *e)
{
	free(*out);
	*out = text_of(f, PATH_MAX_SIZE);
	if (!*out)
		return err_set(e, ERR_INVALID, "target_path: must be text of at most 4096 bytes");
	if (!is_plain(*out))
		return err_set(e, ERR_INVALID,
		    "target_path: must be absolute, without \".\", \"..\" and empty parts");
	return 0;
}

struct entry {
	char *key, *value; /* the value may be secret */
};

static void entry_clear(struct entry *x)
{
	free(x->key);
	mem_wipe_free(x->value);
}

/* One {1 key, 2 value} of a map; what is missing is "". */
static int read_entry(struct entry *x, const struct pbwire_field *map, struct err *e)
{
	struct pbwire at = map->bytes;
	struct pbwire_field f;
	int more;

	*x = (struct entry){NULL, NULL};
	if (map->type != PBWIRE_BYTES)
		return malformed(e);
	while ((more = pbwire_next(&at, &f)) > 0) {
		char **to = f.number == 1 ? &x->key : f.number == 2 ? &x->value : NULL;

		if (!to)
			continue;
		mem_wipe_free(*to);
		*to = text_of(&f, CSI_REQUEST_MAX);
		if (!*to)
			return malformed(e);
	}
	if (!x->key)
		x->key = mem_zalloc(1);
	if (!x->value)
		x->value = mem_zalloc(1);
	return more ? malformed(e) : 0;
}

static void keep_secret(char **to, struct entry *x)
{
	mem_wipe_free(*to);
	*to = take(x->value);
}

static int read_context(struct reader *r, const struct pbwire_field *f, struct err *e)
{
	struct entry x;
	int rc = read_entry(&x, f, e);

	if (!rc && ++r->entries > ENTRIES_MAX)
		rc = err_set(e, ERR_INVALID, "volumeAttributes: more than 256 entries");
	if (!rc && !strcmp(x.key, TOKENS))
		keep_secret(&r->tokens, &x);
	else if (!rc && json_object_set_new(r->context, x.key, json_string(x.value)))
		rc = malformed(e);
	entry_clear(&x);
	return rc;
}

static int read_secret(struct reader *r, const struct pbwire_field *f, struct err *e)
{
	struct entry x;
	int rc = read_entry(&x, f, e);

	if (!rc && !strcmp(x.key, TOKENS))
		keep_secret(&r->secret_tokens, &x);
	entry_clear(&x);
	return rc;
}

static int read_capability(struct reader *r, const struct pbwire_field *f, struct err *e)
{
	struct pbwire at = f->bytes;
	struct pbwire_field part;
	int more;

	if (f->type != PBWIRE_BYTES)
		return malformed(e);
	r->capability = true;
	while ((more = pbwire_next(&at, &part)) > 0)
		r->block |= part.number == 1;
	return more ? malformed(e) : 0;
}

static int read_field(struct reader *r, const struct pbwire_field *f, struct err *e)
{
	switch (f->number) {
	case 1:
		return read_id(r->out->volume_id, f, e);
	case 4:
		return read_path(&r->target_path, f, e);
	case 5:
		return read_capability(r, f, e);
	case 6:
		r->out->readonly = f->type == PBWIRE_VARINT && f->value;
		return 0;
	case 7:
		return read_secret(r, f, e);
	case 8:
		return read_context(r, f, e);
	default:
		return 0;
	}
}

/* --- what it means --- */

static int check_fields(const struct reader *r, struct err *e)
{
	if (!*r->out->volume_id)
		return err_set(e, ERR_INVALID, "volume_id is missing");
	if (!r->target_path || !*r->target_path)
		return err_set(e, ERR_INVALID, "target_path is missing");
	if (!r->capability)
		return err_set(e, ERR_INVALID, "volume_capability is missing");
	if (r->block)
		return err_set(e, ERR_INVALID,
		    "volume_capability: a block device was asked for, and the volume of "
		    "" CSI_DRIVER_NAME " is a directory");
	return 0;
}

static bool read_target_at(struct csi_target *t, const char *at)
{
	static const char volumes[] = "/volumes/kubernetes.io~csi/";
	char uid[UUID_TEXT_SIZE] = "";
	size_t n;

	if (strlen(at) < UUID_TEXT_SIZE)
		return false;
	memcpy(uid, at, UUID_TEXT_SIZE - 1);
	at += UUID_TEXT_SIZE - 1;
	if (!uuid_parse(&t->pod, uid) || strncmp(at, volumes, strlen(volumes)) != 0)
		return false;
	at += strlen(volumes);
	n = strcspn(at, "/");
	if (n >= sizeof(t->volume) || strcmp(at + n, "/mount") != 0)
		return false;
	memset(t->volume, 0, sizeof(t->volume));
	memcpy(t->volume, at, n);
	return identity_valid_ns(t->volume);
}

/* Only one place has the right end; a volume may be called "pods", too. */
static bool read_target(struct csi_target *t, const char *path)
{
	static const char pods[] = "/pods/";

	for (const char *p = path; (p = strstr(p, pods)); p++)
		if (read_target_at(t, p + strlen(pods)))
			return true;
	return false;
}

/* One of the kubelet's keys; NULL, and an error, if it is not there. */
static const char *kubelet_says(const struct reader *r, const char *key, struct err *e)
{
	auto_free char *full = mem_printf(KUBELET "%s", key);
	const char *value = json_string_value(json_object_get(r->context, full));

	if (!value)
		err_set(e, ERR_INVALID,
		    "volume_context has no %s: the CSIDriver object " CSI_DRIVER_NAME
		    " needs podInfoOnMount: true",
		    full);
	return value;
}

static int check_name(
    bool (*valid)(const char *), const char *value, const char *key, struct err *e)
{
	if (valid(value))
		return 0;
	return err_set(e, ERR_INVALID,
	    "volume_context: " KUBELET "%s is no name as Kubernetes makes them", key);
}

static int read_names(struct reader *r, struct err *e)
{
	struct pod_spec *spec = &r->out->spec;
	const char *ns = kubelet_says(r, "pod.namespace", e);
	const char *name = ns ? kubelet_says(r, "pod.name", e) : NULL;
	const char *sa = name ? kubelet_says(r, "serviceAccount.name", e) : NULL;

	if (!sa || check_name(identity_valid_ns, ns, "pod.namespace", e) ||
	    check_name(identity_valid_sa, name, "pod.name", e) ||
	    check_name(identity_valid_sa, sa, "serviceAccount.name", e))
		return -1;
	snprintf(spec->ns, sizeof(spec->ns), "%s", ns);
	snprintf(spec->name, sizeof(spec->name), "%s", name);
	snprintf(spec->sa, sizeof(spec->sa), "%s", sa);
	return 0;
}

/* From the kubelet's keys only (security-rules.md G4). */
static int read_identity(struct reader *r, struct err *e)
{
	const char *ephemeral = kubelet_says(r, "ephemeral", e), *uid;
	struct pod_spec *spec = &r->out->spec;

	if (!ephemeral)
		return -1;
	if (strcmp(ephemeral, "true") != 0)
		return err_set(e, ERR_INVALID,
		    "not an inline volume: name the driver " CSI_DRIVER_NAME
		    " under `csi:` of a volume of the pod, not in a PersistentVolume");
	uid = kubelet_says(r, "pod.uid", e);
	if (!uid || read_names(r, e))
		return -1;
	if (!uuid_parse(&spec->uid, uid))
		return err_set(e, ERR_INVALID,
		    "volume_context: " KUBELET "pod.uid is no uid as Kubernetes makes them");
	if (!uuid_equal(&spec->uid, &r->out->target.pod))
		return err_set(e, ERR_INVALID,
		    "volume_context: " KUBELET "pod.uid is not the pod of target_path");
	return 0;
}

/* NULL: it cannot be read, and mesh/node will say so. */
static json_t *declared(const struct pod_spec *spec, const char *key)
{
	const char *text = json_string_value(json_object_get(spec->env, key));
	struct err ignored;

	return text && *text ? env_parse_object(key, text, &ignored) : NULL;
}

void csi_spec_declare(struct pod_spec *spec)
{
	spec->labels = declared(spec, "ISTIO_METAJSON_LABELS");
	spec->annotations = declared(spec, "ISTIO_METAJSON_ANNOTATIONS");
}

void csi_spec_clear(struct pod_spec *spec)
{
	json_decref(take(spec->env));
	json_decref(take(spec->labels));
	json_decref(take(spec->annotations));
}

static void read_env(struct reader *r)
{
	const char *key;
	json_t *value;

	r->out->spec.env = json_object();
	json_object_foreach (r->context, key, value)
		if (strncmp(key, KUBELET, strlen(KUBELET)) != 0)
			json_object_set(r->out->spec.env, key, value);
	csi_spec_declare(&r->out->spec);
}

/* {"istio-ca": {"token": "...", "expirationTimestamp": ...}, other audiences} */
static void read_token(struct reader *r)
{
	const char *text = r->secret_tokens ? r->secret_tokens : r->tokens;
	size_t len = text ? strlen(text) : 0;
	json_t *all = len && len <= TOKENS_MAX ? json_loadb(text, len, 0, NULL) : NULL;
	const json_t *ours = json_object_get(all, AUDIENCE);

	r->out->token = secret_dup(json_string_value(json_object_get(ours, "token")));
	json_decref(all);
}

int csi_token_check(const struct csi_publish *p, int64_t now_s, struct err *e)
{
	struct token_holder h = {p->spec.ns, p->spec.sa, &p->spec.uid, .unbound = false};
	struct token t;
	int rc;

	if (!p->token)
		return err_set(e, ERR_PRECONDITION,
		    "no token for the audience " AUDIENCE ": the CSIDriver object " CSI_DRIVER_NAME
		    " needs it under tokenRequests");
	if (token_parse(&t, p->token, strlen(p->token), e))
		return -1;
	rc = token_check(&t, &h, now_s, e);
	token_clear(&t);
	return rc;
}

static int read_publish(struct reader *r, struct pbwire *at, struct err *e)
{
	struct pbwire_field f;
	int more;

	while ((more = pbwire_next(at, &f)) > 0)
		if (read_field(r, &f, e))
			return -1;
	if (more)
		return malformed(e);
	if (check_fields(r, e))
		return -1;
	if (!read_target(&r->out->target, r->target_path))
		return err_set(e, ERR_INVALID,
		    "target_path: must end in pods/UID/volumes/kubernetes.io~csi/VOLUME/mount");
	if (read_identity(r, e))
		return -1;
	read_env(r);
	read_token(r);
	return 0;
}

int csi_publish_read(struct csi_publish *out, const struct iovec *iov, size_t n, struct err *e)
{
	struct reader r = {.out = out, .context = json_object()};
	struct pbwire at;
	int rc;

	*out = (struct csi_publish){.token = NULL};
	pbwire_init(&at, iov, n);
	rc = at.left > CSI_REQUEST_MAX ? malformed(e) : read_publish(&r, &at, e);
	free(r.target_path);
	json_decref(r.context);
	mem_wipe_free(r.tokens);
	mem_wipe_free(r.secret_tokens);
	if (rc)
		csi_publish_clear(out);
	return rc;
}

void csi_publish_clear(struct csi_publish *p)
{
	csi_spec_clear(&p->spec);
	secret_free(take(p->token));
}

int csi_unpublish_read(struct csi_unpublish *out, const struct iovec *iov, size_t n, struct err *e)
{
	auto_free char *path = NULL;
	struct pbwire at;
	struct pbwire_field f;
	int more;

	*out = (struct csi_unpublish){.ours = false};
	pbwire_init(&at, iov, n);
	while ((more = pbwire_next(&at, &f)) > 0)
		if ((f.number == 1 && read_id(out->volume_id, &f, e)) ||
		    (f.number == 2 && read_path(&path, &f, e)))
			return -1;
	if (more)
		return malformed(e);
	if (!*out->volume_id)
		return err_set(e, ERR_INVALID, "volume_id is missing");
	if (!path || !*path)
		return err_set(e, ERR_INVALID, "target_path is missing");
	out->ours = read_target(&out->target, path);
	return 0;
}

int csi_registration_read(const struct iovec *iov, size_t n, struct err *e)
{
	char why[200] = "";
	bool registered = false;
	struct pbwire at;
	struct pbwire_field f;

	pbwire_init(&at, iov, n);
	while (pbwire_next(&at, &f) > 0) {
		if (f.number == 1)
			registered = f.type == PBWIRE_VARINT && f.value;
		else if (f.number == 2 && f.type == PBWIRE_BYTES)
			err_printable(why, sizeof(why), why,
			    (unsigned)pbwire_copy(f.bytes, why, sizeof(why)));
	}
	if (registered)
		return 0;
	return err_set(e, ERR_DENIED, "%s", *why ? why : "the kubelet does not say why");
}
