/* budget.c - see budget.h. */
#include "budget.h"
#include <stddef.h>
#include <utlist.h>

static struct rpc_budget_account *accounts;
static int64_t share, all, used;

static int64_t excess(const struct rpc_budget_account *a)
{
	return a->held > share ? a->held - share : 0;
}

static void hold(struct rpc_budget_account *a, int64_t bytes)
{
	used -= excess(a);
	a->held = bytes;
	used += excess(a);
}

void rpc_budget_set(int64_t of_each, int64_t of_all)
{
	struct rpc_budget_account *a;

	share = of_each;
	all = of_all;
	used = 0;
	DL_FOREACH (accounts, a)
		used += excess(a);
}

int64_t rpc_budget_share(void)
{
	return share;
}

int64_t rpc_budget_used(void)
{
	return used;
}

void rpc_budget_join(struct rpc_budget_account *a)
{
	DL_APPEND(accounts, a);
}

void rpc_budget_leave(struct rpc_budget_account *a)
{
	hold(a, 0);
	DL_DELETE(accounts, a);
}

void rpc_budget_charge(struct rpc_budget_account *a, int64_t more)
{
	if (more < 0 && a->draining > 0) {
		int64_t out = -more < a->draining ? -more : a->draining;

		a->draining -= out;
		more += out;
	}
	hold(a, a->held + more > 0 ? a->held + more : 0);
}

struct rpc_budget_account *rpc_budget_worst(void)
{
	struct rpc_budget_account *a, *worst = NULL;

	if (!all || used <= all)
		return NULL;
	DL_FOREACH (accounts, a)
		if (a->held > (worst ? worst->held : share))
			worst = a;
	return worst;
}

void rpc_budget_empty(struct rpc_budget_account *a)
{
	a->draining += a->held;
	hold(a, 0);
}
