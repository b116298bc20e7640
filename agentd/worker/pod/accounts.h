/* accounts.h - the service accounts of this node's pods, as their tokens name them.
 *
 * An account that was deleted and made again has another uid.  The kubelet keeps a pod's token
 * until it is renewed, also when its account is gone, and istiod refuses it.  A token of a newer
 * account of the same name shows that.
 */
#pragma once
#include <stdbool.h>

struct account;
struct accounts;
struct token;

struct accounts *accounts_new(void);
void accounts_free(struct accounts **a); /* all of them were dropped */

/* One use for each pod; an account without uses is forgotten. */
struct account *accounts_use(struct accounts *a, const char *ns, const char *sa);
void accounts_drop(struct account **a);

void accounts_note(struct account *a, const struct token *t); /* it was given to a pod of it */
/* Is there a token that was issued later, and to an account of another uid? */
bool accounts_is_gone(const struct account *a, const struct token *t);
