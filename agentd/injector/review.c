/* review.c - bounds -> JSON -> a review with a uid -> of a pod that is created -> shall it be
 * injected -> the engine -> the patch, or the refusal.
 *
 * Up to the uid a mistake is the asker's and gets an HTTP status; from there on it gets an answer.
 */
#include "review.h"
#include "base/json_text.h"
#include "common/err.h"
#include "common/mem.h"
#include "inject/bounds.h"
#include "inject/config.h"
#include "inject/patch.h"
#include "inject/workload.h"
#include "rule.h"
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

const char *const review_words[REVIEW_RESULTS] = {"injected", "skipped", "refused", "malformed"};

/* A header each, and all of them are shown to a user (injection.md 1). */
enum { WARNINGS_MAX = 16, WARNING_MAX = 120, UID_MAX = 128 };

static const char *text_of(const json_t *o, const char *path)
{
	const char *text = json_string_value(inject_at(o, path));

	return text ? text : "";
}

/* --- the answer --- */

static void warn(json_t *response, const char *text)
{
	json_t *list = json_object_get(response, "warnings");
	char shown[WARNING_MAX + 1];

	if (!list) {
		list = json_array();
		json_object_set_new(response, "warnings", list);
	}
	err_printable(shown, sizeof(shown), text, (unsigned)strlen(text));
	if (json_array_size(list) < WARNINGS_MAX)
		json_array_append_new(list, json_string(shown));
}

static void refuse(struct review *out, json_t *response, const char *why)
{
	out->result = REVIEW_REFUSED;
	err_printable(out->why, sizeof(out->why), why, (unsigned)strlen(why));
	json_object_set_new(response, "allowed", json_false());
	json_object_set_new(response, "status", json_pack("{s:s}", "message", out->why));
}

static void put_patch(struct review *out, json_t *response, const json_t *operations)
{
	auto_free char *patch = json_text(operations, JSON_COMPACT);
	auto_free char *base64 = NULL;

	if (!json_array_size(operations))
		return;
	out->patch_size = strlen(patch);
	base64 = mem_zalloc(4 * ((out->patch_size + 2) / 3) + 1);
	EVP_EncodeBlock(
	    (unsigned char *)base64, (const unsigned char *)patch, (int)out->patch_size);
	json_object_set_new(response, "patchType", json_string("JSONPatch"));
	json_object_set_new(response, "patch", json_string(base64));
}

/* --- what no API server stores --- */

/* The first text with a NUL; `path` gets the way to it, from the inmost member on. */
static bool has_nul(json_t *v, char *path, size_t size)
{
	const char *key;
	json_t *inner;
	size_t i;

	if (json_is_string(v))
		return strlen(json_string_value(v)) != json_string_length(v);
	json_array_foreach (v, i, inner)
		if (has_nul(inner, path, size))
			return true;
	json_object_foreach (v, key, inner)
		if (has_nul(inner, path, size)) {
			if (!*path)
				err_printable(path, (unsigned)size, key, (unsigned)strlen(key));
			return true;
		}
	return false;
}

/* More than that is refused later anyway, and what is JSON or YAML in them is read here. */
static bool annotations_fit(const json_t *pod)
{
	json_t *map = inject_at(pod, "metadata.annotations"), *v;
	const char *key;
	size_t n = 0;

	json_object_foreach (map, key, v)
		n += strlen(key) + json_string_length(v);
	return n <= REVIEW_ANNOTATIONS_MAX;
}

static int check_pod(json_t *pod, struct err *e)
{
	char key[64] = "";

	if (has_nul(pod, key, sizeof(key)))
		return err_set(e, ERR_INVALID, "a text of the pod holds a NUL: %s", key);
	if (!annotations_fit(pod))
		return err_set(e, ERR_INVALID, "metadata.annotations: more than %d KiB",
		    REVIEW_ANNOTATIONS_MAX >> 10);
	return 0;
}

/* --- one pod --- */

static void inject(struct review *out, const struct inject_config *c, json_t *pod, const char *ns,
    json_t *response)
{
	json_t *warnings = json_array(), *done = NULL, *operations, *v;
	struct err e;
	size_t i;

	if (!check_pod(pod, &e))
		done = inject_owned_pod(c, pod, ns, warnings, &e);
	if (done) {
		operations = inject_patch(pod, done);
		out->result = REVIEW_INJECTED;
		put_patch(out, response, operations);
		json_decref(operations);
	} else {
		refuse(out, response, e.msg);
	}
	json_array_foreach (warnings, i, v)
		warn(response, json_string_value(v));
	json_decref(warnings);
	json_decref(done);
}

static bool is_creation(const json_t *request)
{
	return !strcmp(text_of(request, "operation"), "CREATE") &&
	       !*text_of(request, "subResource") && !*text_of(request, "kind.group") &&
	       !strcmp(text_of(request, "kind.version"), "v1") &&
	       !strcmp(text_of(request, "kind.kind"), "Pod");
}

static const char *namespace_of(const json_t *request)
{
	const char *ns = text_of(request, "namespace");

	if (!*ns)
		ns = text_of(request, "object.metadata.namespace");
	return *ns ? ns : "default";
}

static void name_pod(struct review *out, const json_t *pod, const char *ns)
{
	const char *name = text_of(pod, "metadata.name");
	char shown[2][80];

	if (!*name)
		name = text_of(pod, "metadata.generateName");
	snprintf(out->pod, sizeof(out->pod), "%s/%s",
	    err_printable(shown[0], sizeof(shown[0]), ns, (unsigned)strlen(ns)),
	    err_printable(shown[1], sizeof(shown[1]), name, (unsigned)strlen(name)));
}

static void decide(
    struct review *out, const struct inject_config *c, const json_t *request, json_t *response)
{
	json_t *pod = json_object_get(request, "object");
	const char *ns = namespace_of(request);
	struct inject_rule rule;

	if (!is_creation(request)) {
		snprintf(out->why, sizeof(out->why), "not the creation of a pod");
		warn(response, "agentd-injector was asked about something else than the creation "
			       "of a pod: its webhook's rules are wrong");
		return;
	}
	if (!json_is_object(pod)) {
		refuse(out, response, "request.object: must be a map");
		return;
	}
	name_pod(out, pod, ns);
	rule = rule_of(c, pod, ns);
	snprintf(out->why, sizeof(out->why), "%s", rule.why);
	if (rule.yes)
		inject(out, c, pod, ns, response);
}

/* --- the review --- */

static int read_review(const json_t *review, struct err *e)
{
	const char *uid = text_of(review, "request.uid");

	if (strcmp(text_of(review, "apiVersion"), "admission.k8s.io/v1") != 0 ||
	    strcmp(text_of(review, "kind"), "AdmissionReview") != 0)
		return err_set(e, ERR_INVALID, "not an AdmissionReview of admission.k8s.io/v1");
	if (!json_is_object(json_object_get(review, "request")))
		return err_set(e, ERR_INVALID, "AdmissionReview: request: must be a map");
	if (!*uid || json_string_length(inject_at(review, "request.uid")) > UID_MAX)
		return err_set(e, ERR_INVALID,
		    "AdmissionReview: request.uid: must be text of 1 to %d bytes", UID_MAX);
	return 0;
}

static json_t *parse(struct review *out, const char *body, size_t len, struct err *e)
{
	json_error_t where;
	unsigned values = 0;
	json_t *review;

	if (bounds_check(body, len, &values, e)) {
		out->status = 413;
		return NULL;
	}
	review = json_loadb(body, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
	if (!review) {
		char shown[160];

		err_set(e, ERR_INVALID, "the body is no JSON: line %d: %s", where.line,
		    err_printable(shown, sizeof(shown), where.text, (unsigned)strlen(where.text)));
		return NULL;
	}
	if (!read_review(review, e))
		return review;
	json_decref(review);
	return NULL;
}

void review_answer(struct review *out, const struct inject_config *c, const char *body, size_t len)
{
	json_t *review, *response, *answer;
	struct err e;

	*out = (struct review){.result = REVIEW_MALFORMED, .status = 400};
	if (!(review = parse(out, body, len, &e))) {
		snprintf(out->why, sizeof(out->why), "%s", e.msg);
		out->text = mem_strdup(e.msg);
		return;
	}
	out->status = 200;
	out->result = REVIEW_SKIPPED;
	response = json_pack("{s:O, s:b}", "uid", inject_at(review, "request.uid"), "allowed", 1);
	decide(out, c, json_object_get(review, "request"), response);
	answer = json_pack("{s:s, s:s, s:o}", "apiVersion", "admission.k8s.io/v1", "kind",
	    "AdmissionReview", "response", response);
	out->text = json_text(answer, JSON_COMPACT);
	json_decref(answer);
	json_decref(review);
}
