/* identity.c - parse, check and print a SPIFFE id in Istio's form.
 *
 * A URI is cut at its fixed parts, each part is checked by its own rule, and that is all: whatever
 * would need decoding, folding or trimming to become valid is not valid.  So one identity has one
 * spelling and equality is equality of bytes (istio-agent.md 4.4; an answer may name another trust
 * domain than was asked for, istiod-live.md 1.5).
 */
#include "identity.h"
#include "common/err.h"
#include <stdio.h>
#include <string.h>

enum { LABEL_MAX = 63, SUBDOMAIN_MAX = 253, TRUST_DOMAIN_MAX = 255 };

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* [a-z0-9]([-a-z0-9]*[a-z0-9])? up to the end or, for a subdomain, the next dot.  Kubernetes limits
 * a subdomain as a whole, not its labels. */
static size_t label_length(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");
	return n && is_alnum(s[0]) && is_alnum(s[n - 1]) ? n : 0;
}

bool identity_valid_ns(const char *ns)
{
	size_t n = label_length(ns);
	return n && n <= LABEL_MAX && !ns[n];
}

bool identity_valid_sa(const char *sa)
{
	if (strlen(sa) > SUBDOMAIN_MAX)
		return false;
	for (;;) {
		size_t n = label_length(sa);
		if (!n || !sa[n])
			return n;
		if (sa[n] != '.')
			return false;
		sa += n + 1;
	}
}

static bool valid_trust_domain(const char *td)
{
	size_t n = strspn(td, "abcdefghijklmnopqrstuvwxyz0123456789.-_");
	return n && n <= TRUST_DOMAIN_MAX && !td[n];
}

static int refuse(struct err *e, const char *what, const char *value)
{
	char text[80];
	err_printable(text, sizeof(text), value, strlen(value));
	return err_set(e, ERR_INVALID, "%s \"%s\" is not valid", what, text);
}

int identity_set(
    struct identity *id, const char *trust_domain, const char *ns, const char *sa, struct err *e)
{
	if (!valid_trust_domain(trust_domain))
		return refuse(e, "trust domain", trust_domain);
	if (!identity_valid_ns(ns))
		return refuse(e, "namespace", ns);
	if (!identity_valid_sa(sa))
		return refuse(e, "service account", sa);
	/* Zeroed to the end: an identity is part of keys that are compared as memory. */
	struct identity set = {0};
	memcpy(set.trust_domain, trust_domain, strlen(trust_domain));
	memcpy(set.ns, ns, strlen(ns));
	memcpy(set.sa, sa, strlen(sa));
	*id = set;
	return 0;
}

/* Moves behind `literal` if the text starts with it. */
static bool skip(char **at, const char *literal)
{
	size_t n = strlen(literal);
	if (strncmp(*at, literal, n) != 0)
		return false;
	*at += n;
	return true;
}

/* Ends the segment at the next `literal`, which begins with the first '/' that follows. */
static bool cut(char **at, const char *literal)
{
	char *end = strchr(*at, '/');
	if (!end)
		return false;
	*at = end;
	if (!skip(at, literal))
		return false;
	*end = '\0';
	return true;
}

int identity_parse(struct identity *id, const char *uri, size_t len, struct err *e)
{
	char text[IDENTITY_URI_SIZE], shown[100];
	err_printable(shown, sizeof(shown), uri, len < sizeof(shown) ? len : sizeof(shown));
	if (len >= sizeof(text) || memchr(uri, '\0', len))
		return err_set(e, ERR_INVALID, "\"%s\" is not a SPIFFE id", shown);
	memcpy(text, uri, len);
	text[len] = '\0';

	char *td = text;
	if (!skip(&td, "spiffe://"))
		return err_set(e, ERR_INVALID, "\"%s\" is not a SPIFFE id", shown);
	char *ns = td;
	if (!cut(&ns, "/ns/"))
		return err_set(e, ERR_INVALID, "\"%s\" names no namespace", shown);
	char *sa = ns;
	if (!cut(&sa, "/sa/"))
		return err_set(e, ERR_INVALID, "\"%s\" names no service account", shown);
	if (identity_set(id, td, ns, sa, e))
		return err_wrap(e, "\"%s\"", shown);
	return 0;
}

char *identity_uri(const struct identity *id, char out[IDENTITY_URI_SIZE])
{
	snprintf(
	    out, IDENTITY_URI_SIZE, "spiffe://%s/ns/%s/sa/%s", id->trust_domain, id->ns, id->sa);
	return out;
}

bool identity_equal(const struct identity *a, const struct identity *b)
{
	return !strcmp(a->trust_domain, b->trust_domain) && !strcmp(a->ns, b->ns) &&
	       !strcmp(a->sa, b->sa);
}
