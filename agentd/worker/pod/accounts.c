/* accounts.c - a token is read -> the last issued one of its account is kept, without what makes it
 * a token -> whoever has one of another uid, issued before it, has one of an account that is gone.
 */
#include "accounts.h"
#include "common/mem.h"
#include "worker/crypto/token.h"
#include <stdio.h>
#include <string.h>
#include <uthash.h>

struct account {
	struct accounts *all;
	char *name; /* "ns/sa": the key */
	unsigned uses;
	char uid[TOKEN_ACCOUNT_UID_SIZE]; /* of the last issued token; "": none was seen */
	int64_t issued;
	UT_hash_handle hh;
};

struct accounts {
	struct account *first;
};

struct accounts *accounts_new(void)
{
	return mem_zalloc(sizeof(struct accounts));
}

void accounts_free(struct accounts **a)
{
	free(take(*a));
}

struct account *accounts_use(struct accounts *all, const char *ns, const char *sa)
{
	auto_free char *name = mem_printf("%s/%s", ns, sa);
	struct account *a;

	HASH_FIND_STR(all->first, name, a);
	if (!a) {
		a = mem_zalloc(sizeof(*a));
		a->all = all;
		a->name = take(name);
		HASH_ADD_KEYPTR(hh, all->first, a->name, strlen(a->name), a);
	}
	a->uses++;
	return a;
}

void accounts_drop(struct account **account)
{
	struct account *a = take(*account);

	if (!a || --a->uses)
		return;
	HASH_DEL(a->all->first, a);
	free(a->name);
	free(a);
}

void accounts_note(struct account *a, const struct token *t)
{
	if (!*t->account_uid || t->issued < a->issued)
		return;
	snprintf(a->uid, sizeof(a->uid), "%s", t->account_uid);
	a->issued = t->issued;
}

bool accounts_is_gone(const struct account *a, const struct token *t)
{
	return *a->uid && *t->account_uid && strcmp(a->uid, t->account_uid) != 0 &&
	       t->issued < a->issued;
}
