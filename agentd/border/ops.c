/* ops.c - see ops.h. */
#include "ops.h"
#include <stddef.h>

#define ROW(op, fds, pod, ans, words) [LINK_##op] = {fds, LINK_##pod, LINK_##ans, words},
static const struct link_op_row rows[LINK_OP_END] = {LINK_OPS(ROW)};

const struct link_op_row *ops_row(unsigned op)
{
	return op < LINK_OP_END && rows[op].refused ? &rows[op] : NULL;
}
