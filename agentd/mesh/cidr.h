/* cidr.h - lists of address ranges as text, and as rows for a trie that answers with one of them.
 */
#pragma once
#include "border/rules.h"

struct err;

/* Adds the ranges of `list` ("10.0.0.0/8,fd00::/8,192.0.2.1"; empty items are dropped) with `flag`
 * to the rows; a range that is there already gets the flag too.  `what` names the list in errors.
 */
int cidr_add(
    struct redirect_rules *r, const char *what, const char *list, uint32_t flag, struct err *e);
/* Each range gets the flags of all that cover it: the trie tells only the longest that matches, but
 * in istio's rules an exclusion wins whatever its length. */
void cidr_flatten(struct redirect_rules *r);
/* Does a range of these flags begin in 127.0.0.0/8 or at ::1? */
int cidr_has_loopback(const struct redirect_rules *r, uint32_t flags);
/* "10.1.2.3" or "fd00::1"; -1: neither. */
int cidr_parse_address(struct redirect_address *out, const char *text);
