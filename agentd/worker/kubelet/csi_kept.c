/* csi_kept.c - see csi_kept.h. */
#include "csi_kept.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "mesh/identity.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 1, ENTRIES_MAX = 256 + 16 };

void csi_kept_id(const struct uuid *pod, uint8_t id[CSI_KEPT_ID_SIZE])
{
	memset(id, 0, CSI_KEPT_ID_SIZE);
	memcpy(id, pod->bytes, sizeof(pod->bytes));
}

char *csi_kept_write(const struct csi_publish *p, size_t *size)
{
	char uid[UUID_TEXT_SIZE], *text;
	json_t *o;

	uuid_format(&p->target.pod, uid);
	o = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:O, s:s}", "version", VERSION, "uid",
	    uid, "namespace", p->spec.ns, "name", p->spec.name, "service_account", p->spec.sa,
	    "volume", p->target.volume, "volume_id", p->volume_id, "env", p->spec.env, "token",
	    p->token);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	if (!text)
		abort(); /* what was checked can be written; else memory is gone */
	*size = strlen(text);
	return text;
}

static int damaged(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID, "damaged: %s", what);
}

static int copy(char *out, size_t size, const json_t *o, const char *key, struct err *e)
{
	const char *text = json_string_value(json_object_get(o, key));

	if (!text || strlen(text) >= size)
		return damaged(e, key);
	memcpy(out, text, strlen(text) + 1);
	return 0;
}

static int read_env(struct pod_spec *spec, json_t *env, struct err *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(env) || json_object_size(env) > ENTRIES_MAX)
		return damaged(e, "env");
	json_object_foreach (env, key, value)
		if (!json_is_string(value))
			return damaged(e, "env");
	spec->env = json_incref(env);
	csi_spec_declare(spec);
	return 0;
}

static int read_all(struct csi_publish *p, const json_t *o, struct err *e)
{
	const char *token = json_string_value(json_object_get(o, "token"));
	struct pod_spec *spec = &p->spec;
	char uid[UUID_TEXT_SIZE];

	if (copy(uid, sizeof(uid), o, "uid", e) ||
	    copy(spec->ns, sizeof(spec->ns), o, "namespace", e) ||
	    copy(spec->name, sizeof(spec->name), o, "name", e) ||
	    copy(spec->sa, sizeof(spec->sa), o, "service_account", e) ||
	    copy(p->target.volume, sizeof(p->target.volume), o, "volume", e) ||
	    copy(p->volume_id, sizeof(p->volume_id), o, "volume_id", e))
		return -1;
	if (!uuid_parse(&spec->uid, uid) || !identity_valid_ns(p->target.volume) || !token)
		return damaged(e, "not a published pod");
	p->target.pod = spec->uid;
	p->token = secret_dup(token);
	return read_env(spec, json_object_get(o, "env"), e);
}

int csi_kept_read(struct csi_publish *out, const char *text, size_t size, struct err *e)
{
	json_t *o = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	json_int_t version = json_integer_value(json_object_get(o, "version"));
	int rc;

	*out = (struct csi_publish){.token = NULL};
	if (version > VERSION)
		rc = err_set(e, EPROTONOSUPPORT, "a newer agentd wrote it (version %lld)",
		    (long long)version);
	else if (version != VERSION)
		rc = damaged(e, "no version");
	else
		rc = read_all(out, o, e);
	json_decref(o);
	if (rc)
		csi_publish_clear(out);
	return rc;
}
