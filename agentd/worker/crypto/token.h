/* token.h - the claims of a Kubernetes service-account token.
 *
 * Its signature is istiod's to check (security-rules.md 4); here the claims are read from the same
 * bytes that will be sent, so that a token is used only for its own pod, and so that the log can
 * say what istiod's "authentication failure" does not: expired, other audience, other pod.
 */
#pragma once
#include "common/uuid.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum { TOKEN_SIZE_MAX = 16 * 1024, TOKEN_ACCOUNT_UID_SIZE = 64 };

struct token {
	char *jwt; /* secret; trimmed, only characters legal in a header; NULL: none is there, or
		    * none is needed */
	int64_t expires; /* Unix seconds */
	int64_t issued;  /* the same; 0: it does not say */
	char ns[64], sa[254];
	char account_uid[TOKEN_ACCOUNT_UID_SIZE]; /* "": it names none, or a longer one */
	char pod_uid[UUID_TEXT_SIZE];             /* "": it names no pod */
	char audience[256];                       /* the first one, for messages */
	bool for_istio;                           /* "istio-ca" is among the audiences */
};

/* Fills `t` (free with token_clear).  The error never quotes the token. */
int token_parse(struct token *t, const char *text, size_t len, struct err *e);
void token_clear(struct token *t); /* wipes */

/* Who is to use it. */
struct token_holder {
	const char *ns, *sa;
	const struct uuid *pod;
	bool unbound; /* root handed it in: it need not name the pod */
};
/* 0 if its holder may use it now; else `e` says which claim disagrees. */
int token_check(const struct token *t, const struct token_holder *h, int64_t now_s, struct err *e);
