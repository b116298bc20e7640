/* budget.h - what all pods' connections may hold together (security-rules.md G7).
 *
 * An account is a pod's.  Up to a share each pod may hold what it holds, and that counts for
 * nobody.  What pods hold beyond it has to fit into one budget.  At its edge the account that holds
 * most is emptied: what it held drains, and counts no more.  Pure; the caller (guard.c) locks.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct rpc_budget_account { /* embed it zeroed */
	int64_t held;       /* bytes that count */
	int64_t draining;   /* are on their way out */
	struct rpc_budget_account *prev, *next;
};

void rpc_budget_set(int64_t share, int64_t all); /* bytes; `all` 0: no bound, the default */
int64_t rpc_budget_share(void);
int64_t rpc_budget_used(void); /* beyond the shares */
void rpc_budget_join(struct rpc_budget_account *a);
void rpc_budget_leave(struct rpc_budget_account *a);
/* A release (`more` < 0) is taken from draining first. */
void rpc_budget_charge(struct rpc_budget_account *a, int64_t more);
/* The one to empty next; NULL: the budget is kept. */
struct rpc_budget_account *rpc_budget_worst(void);
void rpc_budget_empty(struct rpc_budget_account *a);
