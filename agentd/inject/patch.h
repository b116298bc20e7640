/* patch.h - the difference of two JSON values as a patch of RFC 6902, for any JSON; pure.
 *
 * Only what is new or changed is in it: of an object its members, of a list its elements.  Elements
 * with the same "name" are the same thing (containers, volumes, env), others are if they are equal.
 */
#pragma once
#include <jansson.h>

/* An array of add, remove and replace; empty: they are equal.  It shares values with `to`. */
json_t *inject_patch(json_t *from, json_t *to);
