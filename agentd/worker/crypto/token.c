/* token.c - read the claims of a service-account token, and say whom it is for.
 *
 * The kubelet's file changes -> token_parse: trim, cut at the two dots, decode the middle, read its
 * claims -> token_check before each use, as its pod and the time may have moved on.  Everything
 * here is about which pod a token belongs to; whether it is genuine istiod finds out
 * (security-rules.md 4).  A token with a character that a header must not carry never gets further:
 * grpc refuses it and prints it (istiod-live.md 1.11).
 */
#include "token.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "mesh/identity.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { JSON_DEPTH_MAX = 16, AUDIENCES_MAX = 16 };

#define AUDIENCE "istio-ca"

/* --- the three parts --- */

static int base64url_value(char c)
{
	static const char digits[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const char *p = c ? strchr(digits, c) : NULL;
	return p ? (int)(p - digits) : -1;
}

/* Decodes into `out` (room for 3/4 of `len`), strictly: no padding, no line ends, no stray bits, so
 * that one payload has one spelling.  -1 if it is not base64url. */
static ssize_t base64url_decode(char *out, const char *in, size_t len)
{
	size_t size = 0;
	uint32_t bits = 0;
	unsigned have = 0;
	for (size_t i = 0; i < len; i++) {
		int value = base64url_value(in[i]);
		if (value < 0)
			return -1;
		bits = bits << 6 | (uint32_t)value;
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[size++] = (char)(bits >> have);
			bits &= (1u << have) - 1;
		}
	}
	return have < 6 && bits == 0 ? (ssize_t)size : -1;
}

/* One base64url part, not empty, up to `end`; returns its length or 0. */
static size_t part_length(const char *s, char end)
{
	size_t n = 0;
	while (base64url_value(s[n]) >= 0)
		n++;
	return s[n] == end ? n : 0;
}

/* jansson recurses up to 2048 deep; claims are 4 deep. */
static bool too_deep(const char *json, size_t len)
{
	unsigned depth = 0;
	bool quoted = false;
	for (size_t i = 0; i < len; i++) {
		char c = json[i];
		if (quoted && c == '\\')
			i++;
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted && (c == '{' || c == '[') && ++depth > JSON_DEPTH_MAX)
			return true;
		else if (!quoted && (c == '}' || c == ']') && depth)
			depth--;
	}
	return false;
}

/* The payload as an object, or NULL.  jansson's own message would quote the token. */
static json_t *read_payload(const char *jwt, struct err *e)
{
	const char *payload = strchr(jwt, '.') + 1;
	size_t len = part_length(payload, '.');
	auto_free char *text = mem_zalloc(len);
	ssize_t size = base64url_decode(text, payload, len);
	if (size < 0 || too_deep(text, (size_t)size)) {
		err_set(e, ERR_INVALID, "token: its payload is not base64url of plain JSON");
		return NULL;
	}
	json_t *claims = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(claims)) {
		json_decref(claims);
		err_set(e, ERR_INVALID, "token: its payload is not a JSON object");
		return NULL;
	}
	return claims;
}

/* --- the claims --- */

/* A string claim for which `valid` holds; the path is for the message. */
static int copy_claim(char *out, size_t size, const json_t *claim, const char *path, struct err *e)
{
	const char *s = json_string_value(claim);
	if (!s)
		return err_set(e, ERR_INVALID, "token: claim %s is missing", path);
	if ((size_t)snprintf(out, size, "%s", s) >= size)
		return err_set(e, ERR_INVALID, "token: claim %s is too long", path);
	return 0;
}

/* A token of a service account alone has no such claim. */
static int read_pod(struct token *t, const json_t *pod, struct err *e)
{
	struct uuid ignored;

	if (!pod)
		return 0;
	if (copy_claim(t->pod_uid, sizeof(t->pod_uid), json_object_get(pod, "uid"),
		"kubernetes.io.pod.uid", e))
		return -1;
	if (!uuid_parse(&ignored, t->pod_uid))
		return err_set(e, ERR_INVALID, "token: its pod uid is not valid");
	return 0;
}

static int read_account(struct token *t, const json_t *claims, struct err *e)
{
	const json_t *k = json_object_get(claims, "kubernetes.io");
	const json_t *sa = json_object_get(json_object_get(k, "serviceaccount"), "name");
	if (copy_claim(t->ns, sizeof(t->ns), json_object_get(k, "namespace"),
		"kubernetes.io.namespace", e) ||
	    copy_claim(t->sa, sizeof(t->sa), sa, "kubernetes.io.serviceaccount.name", e))
		return -1;
	const char *uid =
	    json_string_value(json_object_get(json_object_get(k, "serviceaccount"), "uid"));
	if (uid && strlen(uid) < sizeof(t->account_uid))
		memcpy(t->account_uid, uid, strlen(uid) + 1);
	if (!identity_valid_ns(t->ns))
		return err_set(e, ERR_INVALID, "token: its namespace is not valid");
	if (!identity_valid_sa(t->sa))
		return err_set(e, ERR_INVALID, "token: its service account is not valid");
	return read_pod(t, json_object_get(k, "pod"), e);
}

/* `sub` is what istiod goes by; the claims above must not tell another story. */
static int check_subject(const struct token *t, const json_t *claims, struct err *e)
{
	char expected[sizeof("system:serviceaccount::") + sizeof(t->ns) + sizeof(t->sa)];
	snprintf(expected, sizeof(expected), "system:serviceaccount:%s:%s", t->ns, t->sa);
	const char *sub = json_string_value(json_object_get(claims, "sub"));
	if (!sub)
		return err_set(e, ERR_INVALID, "token: claim sub is missing");
	if (strcmp(sub, expected) != 0)
		return err_set(e, ERR_INVALID,
		    "token: claim sub is not %s, as its other claims say", expected);
	return 0;
}

static int add_audience(struct token *t, const json_t *aud, struct err *e)
{
	const char *s = json_string_value(aud);
	if (!s || !*s)
		return err_set(
		    e, ERR_INVALID, "token: claim aud is not a string or a list of them");
	if (!*t->audience)
		err_printable(t->audience, sizeof(t->audience), s, (unsigned)strlen(s));
	t->for_istio |= !strcmp(s, AUDIENCE);
	return 0;
}

static int read_audience(struct token *t, const json_t *aud, struct err *e)
{
	if (!json_is_array(aud))
		return add_audience(t, aud, e);
	if (json_array_size(aud) < 1 || json_array_size(aud) > AUDIENCES_MAX)
		return err_set(e, ERR_INVALID, "token: claim aud lists %zu audiences, not 1 to %d",
		    json_array_size(aud), AUDIENCES_MAX);
	for (size_t i = 0; i < json_array_size(aud); i++)
		if (add_audience(t, json_array_get(aud, i), e))
			return -1;
	return 0;
}

static int read_claims(struct token *t, const json_t *claims, struct err *e)
{
	const json_t *exp = json_object_get(claims, "exp");
	t->expires = json_integer_value(exp); /* 0 if it is anything else */
	t->issued = json_integer_value(json_object_get(claims, "iat"));
	if (t->expires <= 0)
		return err_set(e, ERR_INVALID, "token: claim exp is missing or no time");
	if (read_audience(t, json_object_get(claims, "aud"), e) || read_account(t, claims, e))
		return -1;
	return check_subject(t, claims, e);
}

/* --- the token --- */

static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static int copy_jwt(struct token *t, const char *text, size_t len, struct err *e)
{
	while (len && is_space(text[len - 1]))
		len--;
	while (len && is_space(*text))
		text++, len--;
	if (!len)
		return err_set(e, ERR_INVALID, "token: the file is empty");
	if (len > TOKEN_SIZE_MAX)
		return err_set(
		    e, ERR_INVALID, "token: %zu bytes are more than %d", len, TOKEN_SIZE_MAX);
	t->jwt = secret_new(text, len);

	size_t header = part_length(t->jwt, '.');
	size_t payload = header ? part_length(t->jwt + header + 1, '.') : 0;
	size_t signature = payload ? part_length(t->jwt + header + payload + 2, '\0') : 0;
	/* The sum differs from the length when a NUL byte ended the signature early. */
	if (!signature || header + payload + signature + 2 != len)
		return err_set(e, ERR_INVALID, "token: not three parts of base64url");
	return 0;
}

int token_parse(struct token *t, const char *text, size_t len, struct err *e)
{
	*t = (struct token){0};
	json_t *claims = copy_jwt(t, text, len, e) ? NULL : read_payload(t->jwt, e);
	int rc = claims ? read_claims(t, claims, e) : -1;
	json_decref(claims);
	if (rc)
		token_clear(t);
	return rc;
}

void token_clear(struct token *t)
{
	secret_free(t->jwt);
	*t = (struct token){0};
}

static int disagree(struct err *e, const char *claim, const char *found, const char *expected)
{
	return err_set(
	    e, ERR_DENIED, "token: its %s is \"%s\", the pod's is \"%s\"", claim, found, expected);
}

static int check_pod(const struct token *t, const struct token_holder *h, struct err *e)
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(h->pod, uid);
	if (!*t->pod_uid)
		return h->unbound ? 0 : err_set(e, ERR_DENIED, "token: it names no pod");
	return strcmp(t->pod_uid, uid) != 0 ? disagree(e, "pod uid", t->pod_uid, uid) : 0;
}

int token_check(const struct token *t, const struct token_holder *h, int64_t now_s, struct err *e)
{
	if (strcmp(t->ns, h->ns) != 0)
		return disagree(e, "namespace", t->ns, h->ns);
	if (strcmp(t->sa, h->sa) != 0)
		return disagree(e, "service account", t->sa, h->sa);
	if (check_pod(t, h, e))
		return -1;
	if (!t->for_istio)
		return err_set(e, ERR_DENIED, "token: its audience is \"%s\", not \"%s\"",
		    t->audience, AUDIENCE);
	if (t->expires <= now_s)
		return err_set(
		    e, ERR_DENIED, "token: expired %lld s ago", (long long)(now_s - t->expires));
	return 0;
}
